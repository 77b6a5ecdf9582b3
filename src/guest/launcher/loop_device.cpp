#include "guest/launcher/loop_device.hpp"

#include <linux/loop.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace dsec::launcher {
namespace {

constexpr int attempts = 64;  // another process may take the free number between the two calls
constexpr unsigned misc_major = 10, loop_control_minor = 237, loop_major = 7;

long open_node(const char* path, mode_t type, dev_t device) {
  const long made = sys::call(SYS_mknodat, AT_FDCWD, path, type | 0600, device);
  if (made < 0 && made != -EEXIST) return made;
  return sys::call(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
}

}  // namespace

status make_loop_device(int image, loop_device& device) {
  const fd control(
      open_node("/dev/loop-control", S_IFCHR, makedev(misc_major, loop_control_minor)));
  LAUNCH_TRY("loop: control", control.get());
  loop_config config{};
  config.fd = static_cast<unsigned>(image);
  config.info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
  long answer = -EBUSY;
  for (int i = 0; i < attempts && answer == -EBUSY; ++i) {
    const long number = sys::call(SYS_ioctl, control.get(), LOOP_CTL_GET_FREE, 0);
    LAUNCH_TRY("loop: get free", number);
    snprintf(device.path, sizeof device.path, "/dev/loop%ld", number);
    device.node =
        fd(open_node(device.path, S_IFBLK, makedev(loop_major, static_cast<unsigned>(number))));
    LAUNCH_TRY("loop: open", device.node.get());
    answer = sys::call(SYS_ioctl, device.node.get(), LOOP_CONFIGURE, &config);
  }
  LAUNCH_TRY("loop: configure", answer);
  return {};
}

}  // namespace dsec::launcher
