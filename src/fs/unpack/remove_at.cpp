#include "fs/unpack/remove_at.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>

#include "base/unique_fd.hpp"
#include "fs/printable.hpp"

namespace dsec::fs::unpack {
namespace {

using base::fail_errno;
using base::result;

struct close_directory {
  void operator()(DIR* d) const { ::closedir(d); }
};

}  // namespace

result<std::vector<std::string>> names_in(int directory) {
  // A description of its own: reading must not move the caller's.
  const int own = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (own < 0) return fail_errno("open directory");
  const std::unique_ptr<DIR, close_directory> stream(::fdopendir(own));
  if (!stream) {
    auto error = fail_errno("open directory");
    ::close(own);
    return error;
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return fail_errno("read directory");
  return names;
}

result<void> remove_at(int directory, const std::string& name) {
  if (::unlinkat(directory, name.c_str(), 0) == 0) return {};
  if (errno != EISDIR) return fail_errno("remove " + printable(name));
  const base::unique_fd fd(
      ::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail_errno("open " + printable(name));
  DSEC_TRY(const auto names, names_in(fd.get()));
  for (const auto& inner : names) DSEC_CHECK(remove_at(fd.get(), inner));
  if (::unlinkat(directory, name.c_str(), AT_REMOVEDIR) != 0)
    return fail_errno("remove " + printable(name));
  return {};
}

}  // namespace dsec::fs::unpack
