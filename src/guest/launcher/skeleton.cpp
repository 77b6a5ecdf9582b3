#include "guest/launcher/skeleton.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "guest/launcher/fd.hpp"

namespace dsec::launcher {
namespace {

struct directory {
  const char* path;
  mode_t mode;
};
constexpr directory directories[] = {
    {"proc", 0555}, {"sys", 0555},     {"tmp", 01777},     {"run", 0755},
    {"dev", 0755},  {"dev/pts", 0755}, {"dev/shm", 01777},
};

struct device {
  const char* path;
  unsigned major, minor;
};
constexpr device devices[] = {
    {"dev/null", 1, 3},   {"dev/zero", 1, 5},    {"dev/full", 1, 7},
    {"dev/random", 1, 8}, {"dev/urandom", 1, 9}, {"dev/tty", 5, 0},
};

struct link {
  const char* path;
  const char* target;
};
constexpr link links[] = {
    {"dev/ptmx", "pts/ptmx"},          {"dev/fd", "/proc/self/fd"},
    {"dev/stdin", "/proc/self/fd/0"},  {"dev/stdout", "/proc/self/fd/1"},
    {"dev/stderr", "/proc/self/fd/2"},
};

long unless_there(long answer) {
  return answer == -EEXIST ? 0 : answer;
}

}  // namespace

status make_skeleton() {
  LAUNCH_TRY("skeleton: mkdir",
             unless_there(sys::call(SYS_mkdirat, AT_FDCWD, skeleton_path, 0755)));
  const fd root(
      sys::call(SYS_openat, AT_FDCWD, skeleton_path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  LAUNCH_TRY("skeleton: open", root.get());
  for (const auto& d : directories) {
    LAUNCH_TRY(d.path, unless_there(sys::call(SYS_mkdirat, root.get(), d.path, d.mode)));
    LAUNCH_TRY(d.path,
               sys::call(SYS_fchmodat, root.get(), d.path, d.mode));  // umask does not count
  }
  for (const auto& d : devices) {
    LAUNCH_TRY(d.path, unless_there(sys::call(SYS_mknodat, root.get(), d.path, S_IFCHR | 0666,
                                              makedev(d.major, d.minor))));
    LAUNCH_TRY(d.path, sys::call(SYS_fchmodat, root.get(), d.path, 0666));
  }
  for (const auto& l : links) {
    LAUNCH_TRY(l.path, unless_there(sys::call(SYS_symlinkat, l.target, root.get(), l.path)));
  }
  const fd dev(sys::call(SYS_openat, root.get(), "dev", O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  LAUNCH_TRY("skeleton: dev", dev.get());
  LAUNCH_TRY("skeleton: opaque",
             sys::call(SYS_fsetxattr, dev.get(), "trusted.overlay.opaque", "y", 1, 0));
  return {};
}

}  // namespace dsec::launcher
