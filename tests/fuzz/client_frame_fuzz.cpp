// What a client may send: bytes to a frame (as they are, and packed), then every field of the
// Request in it, as a handler that trusts nothing would read them. Errors are values; anything else
// is a finding.
#include <cstddef>
#include <cstdint>

#include "proto/client.capnp.h"
#include "proto/frame.hpp"
#include "read_all.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const auto& frame :
       {dsec::proto::frame::from_bytes(bytes), dsec::proto::frame::from_packed(bytes)}) {
    if (!frame) continue;
    auto outcome = dsec::proto::view<dsec::proto::Request>(*frame).read(
        [](dsec::proto::Request::Reader request) { dsec::fuzz::read_all(request); });
    (void)outcome;
  }
  return 0;
}
