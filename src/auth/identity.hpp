// Who is on the other side of a connection, and by which key.
#pragma once

#include <string>

namespace dsec::auth {

struct identity {
  std::string principal;
  std::string key_id;  // never the key
};

}  // namespace dsec::auth
