#include "fs/source.hpp"

#include <array>

namespace dsec::fs {
namespace {

struct scheme {
  std::string_view prefix;
  base::result<std::unique_ptr<image_source>> (*open)(std::string_view rest);
};
constexpr std::array schemes{scheme{"debian:", open_debian_source}};

}  // namespace

base::result<std::unique_ptr<image_source>> open_source(std::string_view text) {
  for (const auto& s : schemes) {
    if (text.starts_with(s.prefix)) return s.open(text.substr(s.prefix.size()));
  }
  return open_directory_source(text);
}

}  // namespace dsec::fs
