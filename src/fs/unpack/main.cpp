// Unpacks the layers of one image: opens what it needs, gives up what it does not (confine.hpp),
// reads hostile bytes, says on stdout how it went. One thread; started by fs/unpack_image.cpp.

#include <fcntl.h>
#include <sys/prctl.h>

#include <exception>
#include <iostream>
#include <new>

#include "base/sha256.hpp"
#include "fs/unpack/apply_layer.hpp"
#include "fs/unpack/confine.hpp"
#include "fs/unpack/layer_stream.hpp"

namespace {

using namespace dsec::fs::unpack;
using dsec::base::errc;
using dsec::base::fail;
using dsec::base::result;
using dsec::base::unique_fd;

result<report> run(const std::vector<std::string>& arguments) {
  DSEC_TRY(const auto p, parse_arguments(arguments));
  unique_fd root(::open(p.root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!root) return dsec::base::fail_errno("open " + p.root.string());
  std::vector<unique_fd> blobs;
  for (const auto& l : p.layers) {
    DSEC_TRY(auto fd, open_blob(l));
    blobs.push_back(std::move(fd));
  }
  // OpenSSL reads its configuration when it is first used; there is none to be found later.
  static_cast<void>(dsec::base::sha256_of({}));
  DSEC_CHECK(confine(root.get()));
  return apply_layers(p, std::move(root), std::move(blobs));
}

result<report> run_caught(const std::vector<std::string>& arguments) {
  try {
    return run(arguments);
  } catch (const std::bad_alloc&) {
    return fail(errc::too_large, "the image's layers take too much memory to unpack");
  } catch (const std::exception& e) {
    return fail(errc::internal, std::string("unpack: ") + e.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_NAME, "dsec-unpack");
  std::cout << to_json(run_caught({argv + 1, argv + argc})) << std::flush;
  return std::cout ? 0 : 1;
}
