// Included by clang before everything else in whatever uses Cap'n Proto (CMakeLists.txt). kj 0.9
// leaves these two to C++20's rewritten comparisons, which clang >= 16 no longer finds where a type
// also has an operator!= (P2468R2).
#pragma once

#if defined(__clang__) && __clang_major__ >= 16
#include <kj/string.h>

namespace kj {
inline bool operator==(const char* a, const StringPtr& b) {
  return b.operator==(StringPtr(a));
}
inline bool operator!=(const char* a, const StringPtr& b) {
  return b.operator!=(StringPtr(a));
}
}  // namespace kj
#endif
