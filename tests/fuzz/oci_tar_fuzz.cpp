// Layers come from anywhere. The first byte says how the rest is packed; it is put over a small
// layer of our own. Whatever it does, it does inside the tree; run as root, so that it can do all.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
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

layer described(std::string_view bytes, compression packed) {
  const auto digest = dsec::base::sha256_of(bytes);
  return {"blob", packed, bytes.size(), digest, digest};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const dsec::tests::temp_dir place;
  static const auto lower = lower_layer();
  if (size == 0) return 0;
  const std::string_view upper(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto root = place / "root";
  std::filesystem::create_directory(root);
  const plan p{root,
               {8U << 20U, 2000, 10},
               {described(lower, compression::none),
                described(upper, static_cast<compression>(data[0] % 3))}};
  std::vector<unique_fd> blobs;
  blobs.push_back(in_memory(lower));
  blobs.push_back(in_memory(upper));
  const auto done = apply_layers(
      p, unique_fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), std::move(blobs));
  if (done && done->bytes > p.most.bytes) std::abort();
  if (!dsec::fs::remove_tree(root)) std::abort();  // too deep, too long, or not ours to remove
  for ([[maybe_unused]] const auto& other : std::filesystem::directory_iterator(place.path()))
    std::abort();
  return 0;
}
