#include "fs/unpack/entry_path.hpp"

#include <algorithm>

#include "fs/printable.hpp"

namespace dsec::fs::unpack {
namespace {

using base::errc;
using base::fail;
using base::result;

constexpr std::string_view prefix = ".wh.";
constexpr std::string_view opaque_name = ".wh..wh..opq";
constexpr std::size_t max_raw_bytes = 64U << 10U;

tl::unexpected<base::error> refuse(std::string_view raw, const char* why) {
  return fail(errc::invalid_argument, "entry '" + printable(raw) + "' " + why);
}

}  // namespace

result<entry_path> parse_entry_path(std::string_view raw) {
  if (raw.size() > max_raw_bytes) return refuse(raw, "has a name that is too long");
  entry_path path;
  for (std::size_t begin = 0; begin < raw.size();) {
    const auto end = std::min(raw.find('/', begin), raw.size());
    const auto part = raw.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") return refuse(raw, "leads out of the tree: '..' is not allowed");
    if (path.name.starts_with(prefix)) return refuse(raw, "is in a whiteout");
    if (!path.name.empty()) path.directory = path.full();
    path.name = part;
  }
  return path;
}

result<marked_name> parse_marker(const entry_path& path) {
  if (!path.name.starts_with(prefix)) return marked_name{};
  if (path.name == opaque_name) return marked_name{marker::opaque, {}};
  const auto hidden = path.name.substr(prefix.size());
  if (hidden.empty() || hidden == "." || hidden == "..")
    return refuse(path.full(), "is a whiteout of nothing");
  return marked_name{marker::whiteout, hidden};
}

}  // namespace dsec::fs::unpack
