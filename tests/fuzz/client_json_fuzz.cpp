// What a client may send as text: to a message, that message to text, and back again, which must be
// the same text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "proto/client.capnp.h"
#include "proto/json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsec::proto;
  const auto schema = capnp::Schema::from<Request>();
  const auto message = from_json(schema, {reinterpret_cast<const char*>(data), size});
  if (!message) return 0;
  const auto text = to_json(schema, *message);
  if (!text) std::abort();
  const auto again = from_json(schema, *text);
  if (!again) std::abort();
  const auto same = to_json(schema, *again);
  if (!same || *same != *text) std::abort();
  return 0;
}
