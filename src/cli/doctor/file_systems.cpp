// Layers and overlays: EROFS, loop devices, mapped ids, overlayfs, FUSE. All of it happens in
// processes with mount namespaces of their own. The launcher does the same with code that links no
// C library (guest/launcher/overlay.cpp): here each step stands alone, so that the one that lacks
// can be named.
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/container/empty_image.hpp"
#include "backends/sys/file.hpp"
#include "backends/sys/mount.hpp"
#include "backends/sys/waiting_child.hpp"
#include "base/write_all.hpp"
#include "cli/doctor/apart.hpp"
#include "cli/doctor/capability.hpp"

namespace dsec::cli::doctor {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;
using base::result;
using std::filesystem::path;

result<void> make_directory(const path& p) {
  return sys::make_directory_at(AT_FDCWD, p, 0755);
}

result<path> write_image(const path& scratch) {
  auto image = scratch / "empty.erofs";
  DSEC_TRY(const auto file, sys::open_at(AT_FDCWD, image, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  const auto bytes = container::empty_erofs_image();
  DSEC_CHECK(base::write_all(file.get(), bytes, image.native()));
  return image;
}

result<std::string> mount_file(const path& image) {
  DSEC_CHECK(sys::detached_mount("erofs", image));
  return std::string("mounted an EROFS image from its file");
}

/// Gone with its last user (LO_FLAGS_AUTOCLEAR, loop(4)).
struct loop {
  sys::unique_fd device;
  std::string name;
};

result<loop> attach_loop(const path& image) {
  DSEC_TRY(const auto control, sys::open_at(AT_FDCWD, "/dev/loop-control", O_RDWR));
  DSEC_TRY(const auto file, sys::open_at(AT_FDCWD, image, O_RDONLY));
  constexpr int attempts = 16;  // others may take the free number between the two calls
  for (int i = 0; i < attempts; ++i) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return fail_errno("no loop device is free");
    auto name = "/dev/loop" + std::to_string(number);
    DSEC_TRY(auto device, sys::open_at(AT_FDCWD, name, O_RDWR));
    loop_config config{};
    config.fd = static_cast<unsigned>(file.get());
    config.info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
    if (::ioctl(device.get(), LOOP_CONFIGURE, &config) == 0)
      return loop{std::move(device), std::move(name)};
    if (errno != EBUSY) return fail_errno("cannot use " + name);
  }
  return fail(errc::capacity, "other processes take every free loop device");
}

result<std::string> use_loop(const path& image) {
  DSEC_TRY(const auto l, attach_loop(image));
  return "attached a file to " + l.name;
}

result<std::string> mount_loop(const path& image) {
  DSEC_TRY(const auto l, attach_loop(image));
  DSEC_CHECK(sys::detached_mount("erofs", l.name));
  return "mounted an EROFS image from " + l.name;
}

result<std::string> mount_image(const path& image) {
  if (auto from_file = mount_file(image)) return from_file;
  return mount_loop(image);
}

/// A second mount of `directory` in which id 0 on disk is `first_id`, and so on, attached at `at`.
result<void> attach_mapped(const path& directory, const path& at, std::uint32_t first_id) {
  DSEC_TRY(const auto child, sys::waiting_child::with_mapped_ids(first_id));
  DSEC_TRY(const auto ids,
           sys::open_at(AT_FDCWD, "/proc/" + std::to_string(child.pid()) + "/ns/user", O_RDONLY));
  const sys::unique_fd tree(static_cast<int>(
      ::syscall(SYS_open_tree, AT_FDCWD, directory.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
  if (!tree) return fail_errno("open_tree '" + directory.string() + "'");
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_IDMAP;
  attributes.userns_fd = static_cast<std::uint64_t>(ids.get());
  if (::syscall(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) !=
      0)
    return fail_errno("the file system of '" + directory.string() + "' cannot be mounted idmapped");
  if (::syscall(SYS_move_mount, tree.get(), "", AT_FDCWD, at.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
    return fail_errno("move_mount");
  return {};
}

result<std::string> map_ids(const path& scratch, std::uint32_t first_id) {
  const auto plain = scratch / "plain", mapped = scratch / "mapped";
  for (const auto& each : {plain, mapped}) DSEC_CHECK(make_directory(each));
  DSEC_CHECK(attach_mapped(plain, mapped, first_id));
  struct stat seen {};
  if (::stat(mapped.c_str(), &seen) != 0) return fail_errno("stat");
  if (seen.st_uid != first_id)
    return fail(errc::unsupported, "uid 0 is shown as " + std::to_string(seen.st_uid));
  return "uid 0 on disk is " + std::to_string(first_id) + " in another mount of it";
}

/// File accesses of this thread are those of `id` from here on, capabilities stay: overlayfs makes
/// its work directory as whoever mounts it, and comes up read-only, without an error, when that
/// user is not one of the upper's mount.
void act_as(std::uint32_t id) {
  ::prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
  ::setfsgid(id);
  ::setfsuid(id);
}

result<std::string> stack(const path& scratch, std::uint32_t first_id) {
  const auto lower = scratch / "lower", upper = scratch / "upper",
             mapped = scratch / "mapped-upper", top = scratch / "top";
  for (const auto& each : {lower, upper, mapped, top, upper / "u", upper / "w"})
    DSEC_CHECK(make_directory(each));
  DSEC_CHECK(attach_mapped(upper, mapped, first_id));
  act_as(first_id);
  const auto options = "lowerdir=" + lower.string() + ",upperdir=" + (mapped / "u").string() +
                       ",workdir=" + (mapped / "w").string() + ",volatile";
  if (::mount("overlay", top.c_str(), "overlay", 0, options.c_str()) != 0)
    return fail_errno("cannot mount an overlay");
  struct statvfs info {};
  if (::statvfs(top.c_str(), &info) != 0) return fail_errno("statvfs");
  if ((info.f_flag & ST_RDONLY) != 0)
    return fail(errc::unsupported, "the overlay came up read-only");
  if (const sys::unique_fd made(
          ::open((top / "made").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
      !made)
    return fail_errno("cannot write in the overlay");
  struct stat seen {};
  if (::stat((upper / "u" / "made").c_str(), &seen) != 0) return fail_errno("stat");
  if (seen.st_uid != 0)
    return fail(errc::unsupported, "on disk its owner is " + std::to_string(seen.st_uid));
  return std::string("wrote a file in an overlay; on disk it is owned by uid 0");
}

result<std::string> mount_fuse(const path& scratch) {
  DSEC_TRY(const auto device, sys::open_at(AT_FDCWD, "/dev/fuse", O_RDWR));
  const auto at = scratch / "fuse";
  DSEC_CHECK(make_directory(at));
  const auto options =
      "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0";
  if (::mount("dsec-doctor", at.c_str(), "fuse", 0, options.c_str()) != 0)
    return fail_errno("cannot mount a FUSE file system");
  return std::string("mounted a FUSE file system");
}

}  // namespace

findings look_at_file_systems(const place& p) {
  const auto image = write_image(p.scratch);
  const auto with_image = [&](auto&& use) -> result<std::string> {
    if (!image) return fail(image.error());
    return apart([&] { return use(*image); });
  };
  const auto id = p.node.uid_base;
  auto from_file = with_image(mount_file);
  const bool loops_needed = !from_file;
  return {
      judge({"file systems", "EROFS", true, "modprobe -a erofs loop",
             "nothing: every layer is an EROFS image"},
            with_image(mount_image)),
      judge({"file systems", "EROFS from a file", false, "run Linux 6.12 or newer",
             "everything; each layer in use takes a loop device"},
            from_file),
      judge({"file systems", "loop devices", loops_needed, "modprobe loop",
             loops_needed ? "nothing: this kernel mounts EROFS from loop devices only"
                          : "everything: this kernel mounts EROFS from files"},
            with_image(use_loop)),
      judge({"file systems", "mapped ids", true,
             "put the state directory on ext4, xfs, btrfs or tmpfs; run Linux 5.19 or newer",
             "nothing: layers and writable layers are mounted so"},
            apart([&] { return map_ids(p.scratch, id); })),
      judge({"file systems", "overlay with a mapped upper", true,
             "modprobe overlay; run Linux 5.19 or newer", "nothing: no sandbox starts"},
            apart([&] { return stack(p.scratch, id); })),
      judge({"file systems", "FUSE", false, "modprobe fuse",
             "everything of this release: it loads no layers on demand"},
            apart([&] { return mount_fuse(p.scratch); })),
  };
}

}  // namespace dsec::cli::doctor
