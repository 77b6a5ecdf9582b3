#include "base/sha256.hpp"

#include <openssl/evp.h>

#include <array>

#include "base/text.hpp"

namespace dsec::base {
sha256::sha256() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
}
void sha256::free_context::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}
void sha256::update(std::string_view bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
  return hex({reinterpret_cast<const char*>(digest.data()), size});
}

std::string sha256_of(std::string_view bytes) {
  sha256 digest;
  digest.update(bytes);
  return digest.finish();
}

}  // namespace dsec::base
