// Takes from this process what reading hostile bytes does not need: afterwards it sees one
// directory as "/", no network, and keeps the five capabilities with which root gives files owners,
// modes and attributes. What is open stays open. Needs root; cannot be undone.
#pragma once

#include "base/result.hpp"

namespace dsec::fs::unpack {

base::result<void> confine(int root);

}  // namespace dsec::fs::unpack
