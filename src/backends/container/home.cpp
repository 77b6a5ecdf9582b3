#include "backends/container/home.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "backends/container/command_log.hpp"
#include "backends/container/spool.hpp"
#include "backends/sys/file.hpp"

namespace dsec::container {
namespace {

constexpr std::string_view prefix = ".slot-";

}  // namespace

std::string unnamed_home(std::uint32_t slot) {
  return std::string(prefix) + std::to_string(slot);
}

bool is_unnamed(std::string_view name) {
  return name.substr(0, prefix.size()) == prefix;
}

base::result<void> make_sandboxes_directory(const base::paths& paths) {
  DSEC_CHECK(sys::make_directory_at(AT_FDCWD, paths.sandboxes(), 0700));
  DSEC_TRY(const auto dir, sys::open_directory(paths.sandboxes()));
  // chattr(1) +T: what lies below is unrelated. Without it ext4 puts all homes into one block
  // group, and without a journal it looks at every inode deleted there within the last minutes
  // before it gives out one (recently_deleted() in fs/ext4/ialloc.c): milliseconds where sandboxes
  // come and go. Other file systems refuse the flag and do not need it.
  int flags = 0;
  if (::ioctl(dir.get(), FS_IOC_GETFLAGS, &flags) == 0) {
    flags |= FS_TOPDIR_FL;
    (void)::ioctl(dir.get(), FS_IOC_SETFLAGS, &flags);
  }
  return {};
}

base::result<void> make_home(const base::paths& paths, std::uint32_t slot) {
  DSEC_TRY(const auto sandboxes, sys::open_directory(paths.sandboxes()));
  DSEC_CHECK(sys::make_directory_at(sandboxes.get(), unnamed_home(slot), 0700));
  DSEC_TRY(const auto home,
           sys::open_at(sandboxes.get(), unnamed_home(slot), O_RDONLY | O_DIRECTORY));
  // Mode and owner of upper/u become those of "/" inside; ids on disk are the ids inside.
  for (const auto* name : {"upper", "upper/u", "upper/w"})
    DSEC_CHECK(sys::make_directory_at(home.get(), name, 0755));
  DSEC_CHECK(sys::make_directory_at(home.get(), "spool", 0700));
  const auto spools = paths.sandboxes() / unnamed_home(slot) / "spool";
  DSEC_CHECK(command_log::prepare(spools));
  return spool_dir(spools).prepare();
}

base::result<void> name_home(const base::paths& paths, std::uint32_t slot, const std::string& id) {
  const auto from = paths.sandboxes() / unnamed_home(slot);
  const auto to = paths.sandbox(id);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) != 0)
    return base::fail_errno("cannot make directory '" + to.string() + "'");
  return {};
}

}  // namespace dsec::container
