// How long a test is: the figures of the cases with DSEC_TEST_FULL=1, else a tenth. For counts,
// sizes and times of watching; never for limits, deadlines and thresholds.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace dsec::test {

inline int length(int full) {
  const char* wanted = std::getenv("DSEC_TEST_FULL");
  const bool whole = wanted != nullptr && std::string_view(wanted) == "1";
  return whole ? full : std::max(1, full / 10);
}

}  // namespace dsec::test
