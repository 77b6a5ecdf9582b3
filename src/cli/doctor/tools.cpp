// Programs that importing images runs.
#include <sys/stat.h>

#include "base/subprocess.hpp"
#include "cli/doctor/capability.hpp"
#include "fs/erofs.hpp"

namespace dsec::cli::doctor {
namespace {

using base::errc;
using base::fail;
using base::result;

constexpr std::chrono::seconds patience{20};

/// An image of an empty directory, by the code that imports use.
result<std::string> make_image(const std::filesystem::path& scratch) {
  const auto tree = scratch / "tree";
  if (::mkdir(tree.c_str(), 0755) != 0)
    return base::fail_errno("cannot make '" + tree.string() + "'");
  DSEC_TRY(const auto scan, fs::scan_tree(tree));
  DSEC_CHECK(fs::make_erofs(tree, scan, scratch / "tree.erofs"));
  return std::string("made an image of an empty directory");
}

/// First line of `name --version`.
result<std::string> version_of(const std::string& name) {
  DSEC_TRY(const auto path, base::find_program(name));
  base::subprocess_spec spec;
  spec.argv = {name, "--version"};
  spec.env = {"LC_ALL=C.UTF-8"};
  spec.timeout = patience;
  DSEC_TRY(const auto done, base::run_subprocess(spec));
  if (done.status != 0)
    return fail(errc::unsupported, path + " --version ends with " + std::to_string(done.status));
  return path + ": " + done.out.substr(0, done.out.find('\n'));
}

}  // namespace

findings look_at_tools(const place& p) {
  const auto program = [](const char* name, const char* mend, const char* without) {
    return judge({"tools", name, false, mend, without}, version_of(name));
  };
  return {
      judge({"tools", "mkfs.erofs", true, "apt-get install erofs-utils",
             "sandboxes of images that are there; none can be imported"},
            make_image(p.scratch)),
      program("mmdebstrap", "apt-get install mmdebstrap",
              "importing everything but debian: sources"),
      program("skopeo", "apt-get install skopeo",
              "importing everything but docker:// and docker-archive: sources"),
  };
}

}  // namespace dsec::cli::doctor
