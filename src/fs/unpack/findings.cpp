#include "fs/unpack/findings.hpp"

#include "fs/printable.hpp"

namespace dsec::fs::unpack {

void findings::kind::add(const std::string& example) {
  constexpr std::uint64_t shown = 5;
  ++count;
  if (count <= shown) examples += (examples.empty() ? "" : ", ") + example;
  if (count == shown + 1) examples += ", ...";
}

void findings::device(std::string_view path) {
  devices_.add(printable(path));
}

void findings::attribute(std::string_view path, std::string_view name) {
  attributes_.add(printable(name) + " of " + printable(path));
}

std::vector<std::string> findings::lines() const {
  std::vector<std::string> out;
  const auto say = [&](const kind& k, const char* what) {
    if (k.count > 0)
      out.push_back("left out " + std::to_string(k.count) + what + " (" + k.examples + ")");
  };
  say(devices_, " device nodes");
  say(attributes_, " extended attributes");
  return out;
}

}  // namespace dsec::fs::unpack
