// Text of a message as a string of our own: the message need not live on.
#pragma once

#include <capnp/blob.h>

#include <string>

namespace dsec::proto {

inline std::string text_of(capnp::Text::Reader text) {
  return {text.begin(), text.size()};
}

}  // namespace dsec::proto
