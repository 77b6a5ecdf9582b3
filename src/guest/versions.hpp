// Which versions of a protocol a side speaks. Freestanding, like the headers that use it.
#pragma once

#include <stdint.h>

namespace dsec::guest {

/// Its own, and those of the past back to `oldest`: sandboxes outlive the dsecd that made them, and
/// the next one may be of another release.
struct versions {
  uint32_t oldest, current;

  [[nodiscard]] constexpr bool has(uint32_t version) const {
    return oldest <= version && version <= current;
  }
};

}  // namespace dsec::guest
