// Source: an OCI image layout, oci:DIRECTORY or oci:DIRECTORY:TAG. It is only read. Its layers are
// put into one tree by a program of their own (unpack_image).

#include <cerrno>

#include "base/sha256.hpp"
#include "fs/oci_layout.hpp"
#include "fs/oci_tree.hpp"
#include "fs/printable.hpp"
#include "fs/source.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::result;

class oci_source final : public image_source {
 public:
  oci_source(std::filesystem::path directory, std::string tag, unpack::limits limits)
      : directory_(std::move(directory)), tag_(std::move(tag)), limits_(limits) {}

  /// The digest of a manifest covers everything of an image.
  result<std::string> fingerprint() override {
    DSEC_TRY(auto image, read_oci_image(directory_, tag_));
    image_ = std::move(image);
    return base::sha256_of("oci 1\n" + image_.manifest_digest);
  }
  [[nodiscard]] bool pinned() const override { return true; }

  result<std::filesystem::path> materialise(const std::filesystem::path& scratch,
                                            const progress& tell) override {
    return unpack_tree(image_, scratch / "root", limits_, tell);
  }

  [[nodiscard]] std::optional<image_config> own_config() const override { return image_.config; }

 private:
  std::filesystem::path directory_;
  std::string tag_;
  unpack::limits limits_;
  oci_image image_;
};

}  // namespace

result<source_ptr> open_oci_source(std::string_view text, const source_options& options) {
  const std::string whole(text.substr(0, 4096));
  if (whole.empty() || whole.find('\0') != std::string::npos)
    return fail(errc::invalid_argument, "an OCI source is oci:DIRECTORY or oci:DIRECTORY:TAG");
  std::error_code error;
  std::string directory = whole;
  std::string tag;
  // A directory's name may have a colon too.
  const auto colon = whole.rfind(':');
  if (colon != std::string::npos && !std::filesystem::exists(whole, error)) {
    directory = whole.substr(0, colon);
    tag = whole.substr(colon + 1);
  }
  auto root = std::filesystem::canonical(directory, error);
  if (error.value() == ENOENT)
    return fail(errc::not_found, "no OCI layout '" + printable(directory) + "'");
  if (error) return fail(base::from_errno("source '" + printable(directory) + "'", error.value()));
  return std::make_unique<oci_source>(std::move(root), std::move(tag), options.limits);
}

}  // namespace dsec::fs
