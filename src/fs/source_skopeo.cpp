// Sources that skopeo fetches: docker://REFERENCE of any registry, docker-archive:FILE of
// `docker save`. It writes an OCI layout of our own, which goes the way of every other (oci_tree).

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "base/sha256.hpp"
#include "fs/files.hpp"
#include "fs/oci_layout.hpp"
#include "fs/oci_tree.hpp"
#include "fs/printable.hpp"
#include "fs/skopeo.hpp"
#include "fs/source.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::result;

class skopeo_source final : public image_source {
 public:
  /// `state`: whatever changes when the image may have; empty = never does.
  skopeo_source(std::string from, std::string state, bool pinned, const source_options& options)
      : from_(std::move(from)), state_(std::move(state)), pinned_(pinned), options_(options) {}

  result<std::string> fingerprint() override {
    return base::sha256_of("skopeo 1\n" + from_ + "\n" + state_);
  }
  [[nodiscard]] bool pinned() const override { return pinned_; }

  result<std::filesystem::path> materialise(const std::filesystem::path& scratch,
                                            const progress& tell) override {
    const auto layout = scratch / "layout";
    DSEC_CHECK(make_private_directories(scratch / "tmp"));
    DSEC_CHECK(copy_by_skopeo(
        {from_, layout, scratch / "tmp", options_.insecure_registry, options_.limits.bytes}, tell));
    DSEC_TRY(const auto image, read_oci_image(layout, skopeo_tag));
    config_ = image.config;
    DSEC_TRY(auto root, unpack_tree(image, scratch / "root", options_.limits, tell));
    DSEC_CHECK(remove_tree(layout));  // room for the image
    return root;
  }

  [[nodiscard]] std::optional<image_config> own_config() const override { return config_; }

 private:
  std::string from_, state_;
  bool pinned_;
  source_options options_;
  image_config config_;
};

/// What a reference is made of; its grammar is skopeo's to check.
bool plausible_reference(std::string_view text) {
  return !text.empty() && text.size() <= 1024 && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("./:@_-[]").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

}  // namespace

result<source_ptr> open_registry_source(std::string_view reference, const source_options& options) {
  if (!plausible_reference(reference)) {
    return fail(errc::invalid_argument, "'" + printable(reference) +
                                            "' is not an image reference: docker://HOST/NAME:TAG "
                                            "or docker://HOST/NAME@sha256:DIGEST");
  }
  const bool pinned = reference.find("@sha256:") != std::string_view::npos;
  return std::make_unique<skopeo_source>("docker://" + std::string(reference), "", pinned, options);
}

result<source_ptr> open_archive_source(std::string_view text, const source_options& options) {
  const std::string path(text.substr(0, 4096));
  struct stat st {};
  if (path.empty() || path.find('\0') != std::string::npos || ::stat(path.c_str(), &st) != 0) {
    return fail(errc::not_found,
                "no file '" + printable(path) + "'; a source is docker-archive:FILE");
  }
  if (!S_ISREG(st.st_mode)) {
    return fail(errc::invalid_argument,
                "'" + printable(path) + "' is not a file that docker save wrote");
  }
  std::error_code error;
  const auto file = std::filesystem::canonical(path, error);
  if (error) return fail(base::from_errno("source '" + printable(path) + "'", error.value()));
  if (file.native().find(':') != std::string::npos) {
    return fail(errc::invalid_argument,
                "'" + printable(file.native()) + "': the name has a colon; rename the file");
  }
  // Every change moves ctime, which nobody can set back.
  std::string state;
  for (const auto number : {static_cast<std::int64_t>(st.st_ino), st.st_size, st.st_mtim.tv_sec,
                            st.st_mtim.tv_nsec, st.st_ctim.tv_sec, st.st_ctim.tv_nsec})
    state += std::to_string(number) + " ";
  return std::make_unique<skopeo_source>("docker-archive:" + file.string(), std::move(state), true,
                                         options);
}

}  // namespace dsec::fs
