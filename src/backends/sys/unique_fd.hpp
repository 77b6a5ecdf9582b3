// The project's descriptor owner under the name that this folder uses.
#pragma once

#include "base/unique_fd.hpp"

namespace dsec::sys {

using base::unique_fd;

}  // namespace dsec::sys
