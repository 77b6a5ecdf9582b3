// SHA-256 of bytes as they come. Any thread; cannot fail.
#pragma once

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace dsec::base {

/// SHA-256, in pieces.
class sha256 {
 public:
  sha256();
  void update(std::string_view bytes);
  /// Lower-case hex; ends the digest.
  std::string finish();

 private:
  struct free_context {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, free_context> context_;
};

std::string sha256_of(std::string_view bytes);

}  // namespace dsec::base
