#include "actors/edge_book.hpp"

#include <fstream>

#include "base/ids.hpp"

namespace dsec::actors {

edge_book::edge_book(const std::vector<std::string>& known, time_point now) {
  for (const auto& edge : known) edges_.emplace(edge, now);
}

bool edge_book::joined(const std::string& edge) {
  const bool fresh = !knows(edge);
  edges_.insert_or_assign(edge, std::nullopt);
  return fresh;
}

void edge_book::left(const std::string& edge, time_point now) {
  edges_.insert_or_assign(edge, now);
}

std::optional<edge_book::time_point> edge_book::gone_since(const std::string& edge) const {
  const auto it = edges_.find(edge);
  return it == edges_.end() ? std::nullopt : it->second;
}

std::vector<std::string> edge_book::names() const {
  std::vector<std::string> out;
  out.reserve(edges_.size());
  for (const auto& [edge, gone] : edges_) out.push_back(edge);
  return out;
}

std::vector<std::string> edge_book::gone() const {
  std::vector<std::string> out;
  for (const auto& [edge, gone] : edges_) {
    if (gone) out.push_back(edge);
  }
  return out;
}

bool edge_book::forget_old(time_point now) {
  return std::erase_if(edges_, [now](const auto& e) {
           return e.second && now - *e.second >= forgotten_after;
         }) > 0;
}

std::string edge_book::text() const {
  std::string out;
  for (const auto& [edge, gone] : edges_) out += edge + "\n";
  return out;
}

base::result<std::vector<std::string>> load_edges(const std::filesystem::path& file) {
  std::vector<std::string> out;
  std::error_code absent;
  if (!std::filesystem::exists(file, absent)) return out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line) && out.size() < edge_book::most;) {
    if (!base::is_valid_id(line)) {
      return base::fail(base::errc::corrupt, "'" + file.string() +
                                                 "' is no list of workers; remove it: they come "
                                                 "by themselves");
    }
    out.push_back(line);
  }
  if (in.bad()) return base::fail(base::errc::io, "cannot read '" + file.string() + "'");
  return out;
}

}  // namespace dsec::actors
