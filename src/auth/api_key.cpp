#include "auth/api_key.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>

#include "base/ids.hpp"

namespace dsec::auth {

std::string new_api_key() {
  return "dsec_" + base::random_token(160);
}

std::string hash_of(std::string_view secret) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::array<unsigned char, 32> digest{};
  std::string out;
  // Fails only without memory; no hash then, which no key has.
  if (EVP_Digest(secret.data(), secret.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1)
    return out;
  for (const auto byte : digest) {
    out += digits[byte >> 4U];
    out += digits[byte & 15U];
  }
  return out;
}

bool same_hash(std::string_view a, std::string_view b) {
  return !a.empty() && a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace dsec::auth
