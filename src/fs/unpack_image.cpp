#include "fs/unpack_image.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/subprocess.hpp"
#include "base/unique_fd.hpp"
#include "base/write_all.hpp"
#include "fs/printable.hpp"

extern "C" {
extern const std::byte dsec_unpack_image_begin[], dsec_unpack_image_end[];
}

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::result;

result<base::unique_fd> program() {
  base::unique_fd fd(::memfd_create("dsec-unpack", MFD_CLOEXEC));
  if (!fd) return base::fail_errno("memfd_create");
  DSEC_CHECK(base::write_all(fd.get(), std::span(dsec_unpack_image_begin, dsec_unpack_image_end),
                             "the unpacking program"));
  return fd;
}

}  // namespace

result<unpack::report> unpack_image(const unpack::plan& p) {
  if (::geteuid() != 0) {
    return fail(errc::permission_denied,
                "images of layers can only be unpacked by root: their files have owners");
  }
  DSEC_TRY(const auto file, program());
  base::subprocess_spec spec;
  spec.argv = unpack::arguments_of(p);
  spec.argv.insert(spec.argv.begin(), "/proc/self/fd/" + std::to_string(file.get()));
  // The C locale: names are bytes.
  spec.env = {"LC_ALL=C"};
  spec.own_pid_namespace = true;  // nobody else can be signalled
  spec.timeout = unpack_timeout;
  auto done = base::run_subprocess(spec);
  if (!done) {
    done.error().message = "unpacking layers: " + done.error().message;
    return fail(std::move(done).error());
  }
  if (done->status != 0) {
    return fail(errc::internal, "unpacking layers ended with status " +
                                    std::to_string(done->status) + " " + printable(done->errors));
  }
  return unpack::parse_report(done->out);
}

}  // namespace dsec::fs
