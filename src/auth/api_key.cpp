#include "auth/api_key.hpp"

#include "base/ids.hpp"

namespace dsec::auth {

std::string new_api_key() {
  return "dsec_" + base::random_token(160);
}

}  // namespace dsec::auth
