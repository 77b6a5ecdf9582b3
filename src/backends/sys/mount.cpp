#include "backends/sys/mount.hpp"

#include <linux/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dsec::sys {

using base::fail_errno;

base::result<unique_fd> detached_mount(const std::string& type, const std::string& source) {
  const auto what = "cannot mount " + type;
  unique_fd context(static_cast<int>(::syscall(SYS_fsopen, type.c_str(), FSOPEN_CLOEXEC)));
  if (!context) return fail_errno(what);
  if (::syscall(SYS_fsconfig, context.get(), FSCONFIG_SET_STRING, "source", source.c_str(), 0) !=
          0 ||
      ::syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return fail_errno(what);
  unique_fd mount(static_cast<int>(::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, 0)));
  if (!mount) return fail_errno(what);
  return mount;
}

}  // namespace dsec::sys
