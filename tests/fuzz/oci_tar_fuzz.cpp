// Layers come from anywhere. The first byte says how the rest is packed, or is to be packed here,
// so that the tar of a compressed layer is reached as well; it is put over a small layer of our
// own. Whatever it does, it does inside the tree; run as root, so that it can do all.
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/sha256.hpp"
#include "fs/files.hpp"
#include "fs/unpack/apply_layer.hpp"
#include "support/tar_builder.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace dsec::fs::unpack;
using dsec::base::unique_fd;

unique_fd in_memory(std::string_view bytes) {
  unique_fd fd(::memfd_create("blob", MFD_CLOEXEC));
  if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) ||
      ::lseek(fd.get(), 0, SEEK_SET) != 0)
    std::abort();
  return fd;
}

std::string lower_layer() {
  dsec::tests::tar_builder tar;
  tar.directory("a/b").file("a/b/f", "one").hard_link("a/h", "a/b/f").symlink("s", "a/b");
  tar.symlink("abs", "/a").symlink("up", "../../..").file("x");
  return tar.done();
}

std::string packed(std::string_view tar, compression how) {
  std::string out(tar.size() + (64U << 10U), '\0');
  std::size_t used = 0;
  auto* a = ::archive_write_new();
  how == compression::gzip ? ::archive_write_add_filter_gzip(a)
                           : ::archive_write_add_filter_zstd(a);
  ::archive_write_set_format_raw(a);
  auto* entry = ::archive_entry_new();
  ::archive_entry_set_filetype(entry, AE_IFREG);
  const bool good =
      ::archive_write_open_memory(a, out.data(), out.size(), &used) == ARCHIVE_OK &&
      ::archive_write_header(a, entry) == ARCHIVE_OK &&
      ::archive_write_data(a, tar.data(), tar.size()) == static_cast<la_ssize_t>(tar.size()) &&
      ::archive_write_close(a) == ARCHIVE_OK;
  ::archive_entry_free(entry);
  ::archive_write_free(a);
  if (!good) std::abort();
  out.resize(used);
  return out;
}

/// A layer and its blob.
struct made {
  std::string blob;
  compression packed = compression::none;
  std::string tar;  // that the configuration names

  [[nodiscard]] layer description() const {
    return {"blob", packed, blob.size(), dsec::base::sha256_of(blob), dsec::base::sha256_of(tar)};
  }
};

made upper_layer(unsigned mode, std::string_view bytes) {
  constexpr std::array kinds{compression::none, compression::gzip, compression::zstd};
  const std::string text(bytes);
  mode %= 5;
  // Packed already: what it unpacks to nobody knows, so nothing comes of it but an error.
  if (mode < kinds.size()) return {text, kinds.at(mode), text};
  const auto how = kinds.at(mode - 2);
  return {packed(text, how), how, text};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const dsec::tests::temp_dir place;
  static const auto lower = lower_layer();
  if (size == 0) return 0;
  const auto upper = upper_layer(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  const auto root = place / "root";
  std::filesystem::create_directory(root);
  const plan p{root,
               {8U << 20U, 2000, 10, 64U << 10U},
               {made{lower, compression::none, lower}.description(), upper.description()}};
  std::vector<unique_fd> blobs;
  blobs.push_back(in_memory(lower));
  blobs.push_back(in_memory(upper.blob));
  const auto done = apply_layers(
      p, unique_fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), std::move(blobs));
  if (done && (done->bytes > p.most.bytes || upper.tar.size() > p.most.bytes)) std::abort();
  // The ratio is kept, whatever else is wrong with it.
  if (done && upper.tar.size() > p.most.ratio_counts_from &&
      upper.tar.size() / p.most.ratio > upper.blob.size())
    std::abort();
  if (!dsec::fs::remove_tree(root)) std::abort();  // too deep, too long, or not ours to remove
  for ([[maybe_unused]] const auto& other : std::filesystem::directory_iterator(place.path()))
    std::abort();
  return 0;
}
