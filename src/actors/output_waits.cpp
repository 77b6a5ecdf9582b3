#include "actors/output_waits.hpp"

#include <algorithm>
#include <iterator>

namespace dsec::actors {

output_waits::~output_waits() {
  for (auto& [token, w] : read_for_) w.who.abandon();
  for (auto& [stream, list] : parked_) {
    for (auto& w : list) w.who.abandon();
  }
}

output_waits::key output_waits::key_of(const std::string& command_id, backends::stream which) {
  return command_id + (which == backends::stream::out ? ".out" : ".err");
}

std::uint64_t output_waits::reading(output_wait w) {
  const auto token = ++last_;
  read_for_.emplace(token, std::move(w));
  return token;
}

std::optional<output_wait> output_waits::take(std::uint64_t token) {
  auto found = read_for_.extract(token);
  if (!found) return std::nullopt;
  return std::move(found.mapped());
}

void output_waits::park(output_wait w) {
  auto& list = parked_[key_of(w.of.command_id, w.of.which)];
  list.push_back(std::move(w));
  ++parked_count_;
}

bool output_waits::has_room() {
  if (size() < most) return true;
  for (auto& w : take_parked([](const output_wait& x) { return x.who.gone(); })) w.who.abandon();
  return size() < most;
}

std::uint64_t output_waits::watch(const output_range& of) const {
  const auto it = watches_.find(key_of(of.command_id, of.which));
  return it == watches_.end() ? 0 : it->second;
}

void output_waits::watched(const output_range& of) {
  watches_[key_of(of.command_id, of.which)] = ++last_;
}

std::vector<output_wait> output_waits::grown(const std::string& command_id,
                                             backends::stream which) {
  const auto stream = key_of(command_id, which);
  watches_.erase(stream);
  auto found = parked_.extract(stream);
  if (!found) return {};
  parked_count_ -= found.mapped().size();
  return std::move(found.mapped());
}

std::vector<output_wait> output_waits::ended(const std::string& command_id) {
  auto all = grown(command_id, backends::stream::out);
  std::ranges::move(grown(command_id, backends::stream::err), std::back_inserter(all));
  return all;
}

template <class F>
std::vector<output_wait> output_waits::take_parked(F&& is_it) {
  std::vector<output_wait> all;
  for (auto it = parked_.begin(); it != parked_.end();) {
    auto& list = it->second;
    const auto rest = std::stable_partition(list.begin(), list.end(),
                                            [&](const output_wait& w) { return !is_it(w); });
    std::move(rest, list.end(), std::back_inserter(all));
    list.erase(rest, list.end());
    it = list.empty() ? parked_.erase(it) : std::next(it);
  }
  parked_count_ -= all.size();
  return all;
}

std::vector<output_wait> output_waits::late(time_point at) {
  return take_parked([at](const output_wait& w) { return w.who.deadline <= at; });
}

std::vector<output_wait> output_waits::to_look_at(time_point at) {
  return take_parked([at](const output_wait& w) { return w.look_again && *w.look_again <= at; });
}

time_point output_waits::earliest() const {
  auto first = time_point::max();
  for (const auto& [stream, list] : parked_) {
    for (const auto& w : list)
      first = std::min({first, w.who.deadline, w.look_again.value_or(time_point::max())});
  }
  return first;
}

}  // namespace dsec::actors
