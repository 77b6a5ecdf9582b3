// Resolution and taking of a command's identity (users.hpp).
#include "guest/aether/users.hpp"

#include "guest/aether/fd.hpp"

namespace dsec::guest::aether {
namespace {

/// What setresuid(2) and setresgid(2) take as "leave it as it is", which is root.
constexpr uint32_t no_id = UINT32_MAX;

constexpr size_t max_file = 4U << 20U;  // more of passwd or group is not read

/// Feeds a regular file to `scan`. A missing file is an empty one, as for getpwnam(3).
template <class scan>
long scan_file(const char* path, scan& into) {
  unique_fd file(sys::open_at(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) return 0;
  struct stat about = {};
  if (sys::fstat(file.get(), &about) != 0 || (about.st_mode & S_IFMT) != S_IFREG) return -EINVAL;
  field_splitter<scan> split(into);
  char buffer[1024];
  for (size_t total = 0; total < max_file;) {
    const long n = sys::read(file.get(), buffer, sizeof buffer);
    if (n < 0) return n;
    if (n == 0) break;
    split.feed(buffer, static_cast<size_t>(n));
    total += static_cast<size_t>(n);
  }
  split.finish();
  return 0;
}

/// The user's part: uid, primary group, home; `name` gets what /etc/group will list the user as.
long find_user(const char* user, identity& out, fixed_text<max_user_name>& name) {
  uint32_t number = 0;
  const bool numeric = parse_u32(user, number);
  passwd_scan scan(numeric ? nullptr : user, number);
  if (const long r = scan_file("/etc/passwd", scan); r < 0) return r;
  if (scan.found) {
    out.uid = scan.uid;
    out.gid = scan.gid;
    out.home = scan.home;
    name = scan.user_name;
    return 0;
  }
  if (numeric ||
      equal(user,
            "root")) {  // an image without the file still has ids; group 0, as runc and docker do
    out.uid = number;
    if (number == 0) out.home.add("/root");
    return 0;
  }
  return -ENOENT;
}

long find_groups(const fixed_text<max_user_name>& name, const char* group, identity& out) {
  uint32_t number = 0;
  const bool numeric = group != nullptr && parse_u32(group, number);
  group_scan scan(name.size() == 0 ? nullptr : name.c_str(), numeric ? nullptr : group);
  if (const long r = scan_file("/etc/group", scan); r < 0) return r;
  if (group == nullptr) {  // a group that was asked for takes the place of all others
    out.group_count = scan.count;
    for (size_t i = 0; i < scan.count; ++i) out.groups[i] = scan.gids[i];
    return 0;
  }
  if (!numeric && !scan.found) return -ENOENT;
  out.gid = numeric ? number : scan.named_gid;
  return 0;
}

}  // namespace

long resolve_user(const char* spec, identity& out) {
  if (*spec == '\0' || equal(spec, "root") || equal(spec, "0")) {
    out.home.add("/root");
    return 0;
  }
  fixed_text<2 * max_user_name> user;
  const char* group = nullptr;
  for (const char* at = spec; *at != '\0'; ++at) {
    if (*at == ':') {
      group = at + 1;
      break;
    }
    user.add(at, 1);
  }
  if (user.bad() || user.size() == 0 || (group != nullptr && *group == '\0')) return -EINVAL;
  fixed_text<max_user_name> name;
  if (const long r = find_user(user.c_str(), out, name); r < 0) return r;
  if (const long r = find_groups(name, group, out); r < 0) return r;
  return out.uid == no_id || out.gid == no_id ? -EINVAL : 0;
}

long take_groups(const identity& who) {
  if (const long r = sys::call(__NR_setgroups, who.group_count, who.groups); r < 0) return r;
  return sys::call(__NR_setresgid, who.gid, who.gid, who.gid);
}

long take_uid(const identity& who) {
  return sys::call(__NR_setresuid, who.uid, who.uid, who.uid);
}

}  // namespace dsec::guest::aether
