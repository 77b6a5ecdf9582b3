// A read-only loop device over an image file, for kernels which cannot mount EROFS from a file
// (before 6.12).
#pragma once

#include "guest/launcher/fd.hpp"
#include "guest/launcher/status.hpp"

namespace dsec::launcher {

struct loop_device {
  fd node;  // hold it until the device is mounted; then the kernel frees it with the last user
            // (autoclear)
  char path[32];  // of its node in the launcher's /dev
};

status make_loop_device(int image, loop_device& device);

}  // namespace dsec::launcher
