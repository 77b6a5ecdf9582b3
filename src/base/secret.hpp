// Comparison of what nobody may find out byte by byte: hashes of keys, proofs. Pure; any thread.
#pragma once

#include <string_view>

namespace dsec::base {

/// Takes as long whatever the two differ in; nothing is equal to an empty text.
bool same_secret(std::string_view a, std::string_view b);

}  // namespace dsec::base
