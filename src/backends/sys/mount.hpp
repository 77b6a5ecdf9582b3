// File systems mounted nowhere. Any thread.
#pragma once

#include <string>

#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::sys {

/// Mounts `type` detached (fsopen, fsmount; Linux 5.2): no path, seen by no other process, gone
/// with the last descriptor of it.
base::result<unique_fd> detached_mount(const std::string& type, const std::string& source);

}  // namespace dsec::sys
