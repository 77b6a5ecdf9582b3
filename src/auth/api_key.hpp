// API keys: how they are made, and what is kept of them. Pure but for getrandom(2); any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/sha256.hpp"

namespace dsec::auth {

/// "dsec_" and 160 random bits.
std::string new_api_key();

/// SHA-256 as hexadecimal digits: all that is ever stored or compared. A slow hash and salt are for
/// secrets that can be guessed; 160 random bits cannot.
inline std::string hash_of(std::string_view secret) {
  return base::sha256_of(secret);
}

}  // namespace dsec::auth
