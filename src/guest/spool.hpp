// Where a byte of a command's output stands in its spool file: the first half of the cap is kept
// for good, the second half is a ring over what comes after. What the disk did not take is not
// followed by anything: such a file ends there, before its cap and its total; one that had filled
// is cut back to its first half. Freestanding, pure; used by aether (writes) and dsecd (reads).
#pragma once

#include <stdint.h>

namespace dsec::guest {

struct spool_layout {
  uint64_t cap;  // even

  [[nodiscard]] constexpr uint64_t half() const { return cap / 2; }

  /// File offset of stream position `p`.
  [[nodiscard]] constexpr uint64_t file_offset(uint64_t p) const {
    return p < half() ? p : half() + (p - half()) % half();
  }

  /// How many bytes from position `p` on lie contiguously in the file.
  [[nodiscard]] constexpr uint64_t contiguous(uint64_t p) const {
    return p < half() ? half() - p : half() - (p - half()) % half();
  }

  /// The dropped range [from, to) after `total` bytes were written; empty while total <= cap.
  [[nodiscard]] constexpr uint64_t dropped_from() const { return half(); }
  [[nodiscard]] constexpr uint64_t dropped_to(uint64_t total) const {
    return total <= cap ? half() : total - half();
  }
};

}  // namespace dsec::guest
