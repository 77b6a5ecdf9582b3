#include "fs/erofs.hpp"

#include <linux/capability.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string>

#include "base/subprocess.hpp"
#include "fs/printable.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::result;

result<void> check_space(const std::filesystem::path& target, std::uint64_t needed) {
  const auto directory = target.parent_path();
  struct statvfs st {};
  if (::statvfs(directory.c_str(), &st) != 0)
    return base::fail_errno("statvfs " + directory.string());
  const auto available = static_cast<std::uint64_t>(st.f_bavail) * st.f_frsize;
  if (available >= needed) return {};
  const auto mib = [](std::uint64_t bytes) {
    return std::to_string((bytes + (1U << 20U) - 1) >> 20U) + " MiB";
  };
  return fail({errc::io,
               "the image needs " + mib(needed) + ", the file system of " + directory.string() +
                   " has " + mib(available) + " left",
               ENOSPC});
}

std::vector<std::string> command(const std::filesystem::path& tree, const tree_summary& scan,
                                 const std::filesystem::path& target) {
  std::vector<std::string> argv{"mkfs.erofs", "--quiet", "-d1"};
  // A random UUID would make every image unique.
  argv.insert(argv.end(), {"-U", "00000000-0000-4000-8000-000000000000"});
  // Never share extended attributes between files: the shared ones are collected in directory hash
  // order.
  argv.emplace_back("-x2147483647");
  for (const auto& path : scan.excluded) argv.push_back("--exclude-path=" + path);
  argv.push_back(target.string());
  argv.push_back(tree.string());
  return argv;
}

base::error explain(const base::subprocess_result& done, const std::filesystem::path& tree,
                    const tree_summary& scan) {
  const auto says = [&](const char* text) { return done.errors.find(text) != std::string::npos; };
  const auto message = "mkfs.erofs failed on " + tree.string() + " with status " +
                       std::to_string(done.status) + ": " + printable(done.errors, 2000);
  if (says("[Error 28]")) return {errc::io, message, ENOSPC};
  // mkfs.erofs 1.5 has room for one byte less than a name may have, and then says only "no such
  // file".
  const auto name = std::filesystem::path(scan.longest_name).filename().native();
  if (says("[Error 2]") && name.size() == NAME_MAX) {
    return {errc::invalid_argument,
            printable((tree / scan.longest_name).native(), PATH_MAX) +
                ": mkfs.erofs cannot store a name of " + std::to_string(NAME_MAX) +
                " bytes; shorten it and import again",
            0};
  }
  return {errc::internal, message, 0};
}

}  // namespace

result<void> make_erofs(const std::filesystem::path& tree, const tree_summary& scan,
                        const std::filesystem::path& target) {
  DSEC_CHECK(check_space(target, scan.image_bytes));
  base::subprocess_spec spec;
  spec.argv = command(tree, scan, target);
  // mkfs.erofs 1.5 takes SOURCE_DATE_EPOCH as the build time, and as the ceiling of all times. In
  // the far future (the last second of 9999) it fixes the former and leaves the latter alone; -T
  // would set all times to one.
  spec.env = {"SOURCE_DATE_EPOCH=253402300799", "LC_ALL=C.UTF-8"};
  spec.timeout = conversion_timeout;
  // listxattr(2) hides trusted.* from whoever lacks this capability: an image cannot bring
  // overlayfs's own marks (opaque directories, redirects to other paths).
  spec.drop_capabilities = {CAP_SYS_ADMIN};
  auto done = base::run_subprocess(spec);
  if (!done && done.error().code == errc::not_found) {
    return fail(errc::unsupported, "mkfs.erofs is not installed: install the package erofs-utils");
  }
  if (!done) return fail(std::move(done).error());
  if (done->status == 0) return {};
  ::unlink(target.c_str());
  return fail(explain(*done, tree, scan));
}

}  // namespace dsec::fs
