#include "fs/source.hpp"

#include <array>

namespace dsec::fs {
namespace {

struct scheme {
  std::string_view prefix;
  base::result<source_ptr> (*open)(std::string_view rest, const source_options& options);
};
constexpr std::array schemes{
    scheme{"debian:", open_debian_source}, scheme{"docker://", open_registry_source},
    scheme{"oci:", open_oci_source}, scheme{"docker-archive:", open_archive_source}};

}  // namespace

base::result<source_ptr> open_source(std::string_view text, const source_options& options) {
  for (const auto& s : schemes) {
    if (text.starts_with(s.prefix)) return s.open(text.substr(s.prefix.size()), options);
  }
  return open_directory_source(text, options);
}

}  // namespace dsec::fs
