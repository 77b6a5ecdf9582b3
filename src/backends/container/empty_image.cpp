#include "backends/container/empty_image.hpp"

#include <sys/stat.h>

#include <cstdint>
#include <cstring>

namespace dsec::container {
namespace {

// On-disk format: Documentation/filesystems/erofs.rst and the kernel's fs/erofs/erofs_fs.h;
// little-endian, packed.
struct [[gnu::packed]] super_block {
  std::uint32_t magic = 0xE0F5E1E2;
  std::uint32_t checksum = 0, feature_compat = 0;
  std::uint8_t block_bits = 12, extra_slots = 0;
  std::uint16_t root_nid = 0;
  std::uint64_t inodes = 1, build_time = 0;
  std::uint32_t build_time_ns = 0, blocks = 1, meta_block = 0, xattr_block = 0;
  std::byte uuid[16]{}, volume_name[16]{};
  std::uint32_t feature_incompat = 0;
  std::byte rest[44]{};
};
static_assert(sizeof(super_block) == 128);

struct [[gnu::packed]] compact_inode {
  std::uint16_t format = 2U << 1U;  // compact; data inline behind the inode
  std::uint16_t xattr_count = 0, mode = S_IFDIR | 0755, links = 2;
  std::uint32_t size = 0, reserved = 0, raw_block = 0, number = 1;
  std::uint16_t uid = 0, gid = 0;
  std::uint32_t reserved2 = 0;
};
static_assert(sizeof(compact_inode) == 32);

struct [[gnu::packed]] directory_entry {
  std::uint64_t nid = 0;
  std::uint16_t name_offset = 0;
  std::uint8_t type = 2;  // directory
  std::uint8_t reserved = 0;
};
static_assert(sizeof(directory_entry) == 12);

struct [[gnu::packed]] root_directory {
  compact_inode inode;
  directory_entry dot, dot_dot;
  char names[3] = {'.', '.', '.'};  // "." and ".."
};

constexpr std::size_t super_offset = 1024;
constexpr std::size_t root_offset = super_offset + sizeof(super_block);
constexpr std::uint16_t root_nid =
    root_offset / sizeof(compact_inode);  // inodes are numbered by their place

}  // namespace

std::array<std::byte, 4096> empty_erofs_image() {
  super_block super;
  super.root_nid = root_nid;
  root_directory root;
  root.inode.size = sizeof root - sizeof root.inode;
  root.dot = {root_nid, 2 * sizeof(directory_entry)};
  root.dot_dot = {root_nid, 2 * sizeof(directory_entry) + 1};
  std::array<std::byte, 4096> image{};
  std::memcpy(image.data() + super_offset, &super, sizeof super);
  std::memcpy(image.data() + root_offset, &root, sizeof root);
  return image;
}

}  // namespace dsec::container
