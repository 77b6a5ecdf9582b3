// write(2) until all is written. Blocks; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/result.hpp"

namespace dsec::base {

/// `name` is the file's, for the error, after which part of it may be written.
result<void> write_all(int fd, std::string_view bytes, std::string_view name);
result<void> write_all(int fd, std::span<const std::byte> bytes, std::string_view name);

}  // namespace dsec::base
