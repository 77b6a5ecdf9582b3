#include "base/secret.hpp"

#include <openssl/crypto.h>

namespace dsec::base {

bool same_secret(std::string_view a, std::string_view b) {
  return !a.empty() && a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace dsec::base
