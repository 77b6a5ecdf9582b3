#include "fs/apt_sources.hpp"

#include <algorithm>
#include <array>

namespace dsec::fs {
namespace {

constexpr std::array<std::string_view, 3> pockets{"", "-updates", "-security"};

template <class Each>
void for_each_piece(std::string_view text, char separator, Each&& each) {
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    if (end > begin) each(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

std::vector<std::string> words(std::string_view line) {
  std::vector<std::string> out;
  for_each_piece(line, ' ', [&](std::string_view word) { out.emplace_back(word); });
  return out;
}

/// A release that is given as "stable" is known by its codename once its lists were fetched.
bool serves(const apt_target& target, std::string_view release) {
  return target.release == release || target.codename == release;
}

/// One line per repository, with all of its components.
void add_lines(std::vector<std::string>& lines, const std::vector<apt_target>& targets,
               const std::string& wanted, const std::string& written) {
  std::vector<std::string> done;
  for (const auto& first : targets) {
    if (!serves(first, wanted) || std::ranges::count(done, first.uri) > 0) continue;
    done.push_back(first.uri);
    std::string line =
        std::string("deb ") + (first.trusted ? "[trusted=yes] " : "") + first.uri + " " + written;
    std::vector<std::string> components;
    for (const auto& t : targets) {
      if (!serves(t, wanted) || t.uri != first.uri) continue;
      if (std::ranges::count(components, t.component) > 0) continue;
      components.push_back(t.component);
      line += " " + t.component;
    }
    lines.push_back(std::move(line));
  }
}

}  // namespace

std::vector<apt_target> parse_apt_targets(std::string_view text) {
  std::vector<apt_target> targets;
  for_each_piece(text, '\n', [&](std::string_view line) {
    const auto w = words(line);
    // Flat repositories have no component; theirs are the lines of another length.
    if (w.size() != 5 || w[1].ends_with('/')) return;
    targets.push_back({w[0], w[1], w[2], w[3], w[4] == "yes"});
  });
  return targets;
}

std::vector<std::string> sources_for(const std::vector<apt_target>& targets, std::string_view suite,
                                     std::string_view host_codename) {
  std::vector<std::string> lines;
  for (const auto pocket : pockets) {
    const auto release = std::string(suite) + std::string(pocket);
    add_lines(lines, targets, release, release);
  }
  if (!lines.empty() || host_codename.empty()) return lines;
  // unstable and experimental have neither updates nor a security suite.
  const bool rolling = suite == "sid" || suite == "unstable" || suite == "experimental";
  for (const auto pocket : pockets) {
    if (rolling && !pocket.empty()) continue;
    // Third parties publish for one suite under its name; a distribution's own archive has a
    // component "main".
    std::vector<apt_target> own;
    std::ranges::copy_if(targets, std::back_inserter(own),
                         [](const apt_target& t) { return t.component == "main"; });
    add_lines(lines, own, std::string(host_codename) + std::string(pocket),
              std::string(suite) + std::string(pocket));
  }
  return lines;
}

std::string network_options(std::string_view apt_config_dump) {
  constexpr std::array<std::string_view, 6> wanted{
      "Acquire::http::",   "Acquire::https::",     "Acquire::ftp::",
      "Acquire::Retries ", "Acquire::Check-Date ", "Acquire::Check-Valid-Until "};
  std::string out;
  for_each_piece(apt_config_dump, '\n', [&](std::string_view line) {
    if (std::ranges::any_of(wanted,
                            [&](std::string_view prefix) { return line.starts_with(prefix); })) {
      out += line;
      out += '\n';
    }
  });
  return out;
}

std::string codename_of(std::string_view os_release) {
  constexpr std::string_view key = "VERSION_CODENAME=";
  std::string codename;
  for_each_piece(os_release, '\n', [&](std::string_view line) {
    if (!line.starts_with(key)) return;
    codename = line.substr(key.size());
    std::erase(codename, '"');
  });
  return codename;
}

}  // namespace dsec::fs
