#include "fs/unpack/archive.hpp"

#include <cerrno>

namespace dsec::fs::unpack {

base::error error_of(archive* a, const std::string& what) {
  const char* text = ::archive_error_string(a);
  const auto message = what + ": " + (text != nullptr ? text : "cannot be read");
  const auto code = ::archive_errno(a) == ENOMEM ? base::errc::too_large : base::errc::corrupt;
  return {code, message, 0};
}

}  // namespace dsec::fs::unpack
