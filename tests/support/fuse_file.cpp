#include "support/fuse_file.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace dsec::test {
namespace {

constexpr std::uint64_t file_node = FUSE_ROOT_ID + 1;
constexpr std::uint32_t most_read = 1U << 20U;
constexpr std::uint64_t forever = 1U << 30U;  // seconds

fuse_attr attributes(std::uint64_t node, std::uint64_t size) {
  fuse_attr a{};
  const bool file = node == file_node;
  a.ino = node;
  a.mode = file ? S_IFREG | 0400 : S_IFDIR | 0500;
  a.nlink = 1;
  a.size = file ? size : 0;
  a.blksize = 4096;
  a.blocks = a.size / 512;
  return a;
}

[[noreturn]] void give_up(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

/// Seen by nobody: other tests look at the host's mounts meanwhile.
sys::unique_fd mount_detached(int device) {
  const sys::unique_fd context(::fsopen("fuse", FSOPEN_CLOEXEC));
  if (!context) give_up("fsopen fuse");
  const auto set = [&](const char* key, const std::string& value) {
    if (::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0) != 0) give_up(key);
  };
  set("fd", std::to_string(device));
  set("rootmode", "40000");
  set("user_id", "0");
  set("group_id", "0");
  for (const char* flag : {"allow_other", "default_permissions"}) {
    if (::fsconfig(context.get(), FSCONFIG_SET_FLAG, flag, nullptr, 0) != 0) give_up(flag);
  }
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    give_up("fuse superblock");
  sys::unique_fd made(::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID));
  if (!made) give_up("fsmount fuse");
  return made;
}

}  // namespace

fuse_file::fuse_file(const std::filesystem::path& source)
    : source_(::open(source.c_str(), O_RDONLY | O_CLOEXEC)),
      device_(::open("/dev/fuse", O_RDWR | O_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC)) {
  struct stat info {};
  if (!source_ || ::fstat(source_.get(), &info) != 0) give_up(source.string());
  if (!device_) give_up("/dev/fuse");
  size_ = static_cast<std::uint64_t>(info.st_size);
  mount_ = mount_detached(device_.get());
  server_ = std::thread([this] { serve(); });
}

fuse_file::~fuse_file() {
  let_go();
  mount_.reset();
  stopping_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
  server_.join();
}

void fuse_file::let_go() {
  holding_ = false;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
}

void fuse_file::serve() {
  std::vector<char> buffer(most_read + 4096);
  while (!stopping_) {
    pollfd both[] = {{device_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    ::poll(both, 2, -1);
    if (both[1].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto n = ::read(wake_.get(), &count, sizeof count);
      for (const auto& r : held_) answer_read(r);
      held_.clear();
      held_count_ = 0;
    }
    if (both[0].revents != 0 && !serve_one(buffer)) return;
  }
}

/// False: the file system is gone.
bool fuse_file::serve_one(std::vector<char>& buffer) {
  const auto n = ::read(device_.get(), buffer.data(), buffer.size());
  if (n < 0) return errno != ENODEV;
  fuse_in_header head{};
  std::memcpy(&head, buffer.data(), sizeof head);
  const char* body = buffer.data() + sizeof head;
  const auto reply = [&](const auto& out) { answer(head.unique, 0, &out, sizeof out); };
  switch (head.opcode) {
    case FUSE_INIT: {
      fuse_init_in in{};
      std::memcpy(&in, body, std::min(sizeof in, static_cast<std::size_t>(n) - sizeof head));
      fuse_init_out out{};
      out.major = FUSE_KERNEL_VERSION;
      out.minor = std::min<std::uint32_t>(in.minor, 31);
      out.max_readahead = out.max_write = most_read;
      out.max_background = 64;
      out.congestion_threshold = 48;
      out.flags = FUSE_ASYNC_READ;
      reply(out);
      return true;
    }
    case FUSE_LOOKUP: {
      if (std::strcmp(body, "image") != 0) {
        answer(head.unique, ENOENT, nullptr, 0);
        return true;
      }
      fuse_entry_out out{};
      out.nodeid = file_node;
      out.entry_valid = out.attr_valid = forever;
      out.attr = attributes(file_node, size_);
      reply(out);
      return true;
    }
    case FUSE_GETATTR: {
      fuse_attr_out out{};
      out.attr_valid = forever;
      out.attr = attributes(head.nodeid, size_);
      reply(out);
      return true;
    }
    case FUSE_OPEN: {
      fuse_open_out out{};
      out.open_flags = FOPEN_KEEP_CACHE;
      reply(out);
      return true;
    }
    case FUSE_READ: {
      fuse_read_in in{};
      std::memcpy(&in, body, sizeof in);
      const held_read r{head.unique, in.offset, std::min(in.size, most_read)};
      if (!holding_) {
        answer_read(r);
      } else {
        held_.push_back(r);
        held_count_ = static_cast<int>(held_.size());
      }
      return true;
    }
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return true;  // not answered
    case FUSE_RELEASE:
    case FUSE_FLUSH:
      answer(head.unique, 0, nullptr, 0);
      return true;
    default:
      answer(head.unique, ENOSYS, nullptr, 0);
      return true;
  }
}

void fuse_file::answer(std::uint64_t unique, int error, const void* data, std::size_t size) const {
  fuse_out_header head{};
  head.len = static_cast<std::uint32_t>(sizeof head + (error == 0 ? size : 0));
  head.error = -error;
  head.unique = unique;
  const iovec parts[] = {{&head, sizeof head}, {const_cast<void*>(data), error == 0 ? size : 0}};
  // ENOENT: whoever asked has been interrupted.
  [[maybe_unused]] const auto n = ::writev(device_.get(), parts, 2);
}

void fuse_file::answer_read(const held_read& r) const {
  std::vector<char> data(r.size);
  const auto n = ::pread(source_.get(), data.data(), data.size(), static_cast<off_t>(r.offset));
  answer(r.unique, n < 0 ? EIO : 0, data.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
}

}  // namespace dsec::test
