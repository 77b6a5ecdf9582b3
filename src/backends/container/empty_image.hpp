// The smallest EROFS image there is: an empty root directory. With it a host can be probed without
// any image of its own and without mkfs.erofs. Pure.
#pragma once

#include <array>
#include <cstddef>

namespace dsec::container {

std::array<std::byte, 4096> empty_erofs_image();

}  // namespace dsec::container
