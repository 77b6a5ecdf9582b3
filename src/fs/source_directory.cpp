// Source: a directory of this machine, taken as it is. It is only read.

#include <cerrno>

#include "fs/printable.hpp"
#include "fs/source.hpp"
#include "fs/tree_scan.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::result;

class directory_source final : public image_source {
 public:
  explicit directory_source(std::filesystem::path root) : root_(std::move(root)) {}

  result<std::string> fingerprint() override {
    DSEC_TRY(const auto scan, scan_tree(root_));
    return scan.fingerprint;
  }
  [[nodiscard]] bool pinned() const override { return true; }
  result<std::filesystem::path> materialise(const std::filesystem::path&,
                                            const progress&) override {
    return root_;
  }

 private:
  std::filesystem::path root_;
};

}  // namespace

result<source_ptr> open_directory_source(std::string_view path, const source_options&) {
  const std::string text(path.substr(0, 4096));
  if (text.empty() || text.find('\0') != std::string::npos)
    return fail(errc::invalid_argument, "the source is empty");
  std::error_code error;
  auto root = std::filesystem::canonical(text, error);
  if (error.value() == ENOENT) {
    return fail(errc::not_found,
                "no directory '" + printable(text) +
                    "'; a source is a directory, debian:SUITE+PACKAGE,PACKAGE, docker://REFERENCE, "
                    "oci:DIRECTORY:TAG or docker-archive:FILE");
  }
  if (error) return fail(base::from_errno("source '" + printable(text) + "'", error.value()));
  if (!std::filesystem::is_directory(root, error)) {
    return fail(errc::invalid_argument, "source '" + printable(text) + "' is not a directory");
  }
  return std::make_unique<directory_source>(std::move(root));
}

}  // namespace dsec::fs
