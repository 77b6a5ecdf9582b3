// What a client may send: bytes to a frame (as they are, and packed), then every field of the
// Request in it, as a handler that trusts nothing would read them. Errors are values; anything else
// is a finding.
#include <capnp/dynamic.h>

#include <cstddef>
#include <cstdint>

#include "proto/client.capnp.h"
#include "proto/frame.hpp"

namespace {

void read_all(const capnp::DynamicValue::Reader& value);

void read_struct(const capnp::DynamicStruct::Reader& value) {
  for (const auto field : value.getSchema().getNonUnionFields()) read_all(value.get(field));
  KJ_IF_MAYBE (member, value.which()) read_all(value.get(*member));
}

void read_all(const capnp::DynamicValue::Reader& value) {
  switch (value.getType()) {
    case capnp::DynamicValue::STRUCT:
      return read_struct(value.as<capnp::DynamicStruct>());
    case capnp::DynamicValue::LIST:
      for (const auto element : value.as<capnp::DynamicList>()) read_all(element);
      return;
    case capnp::DynamicValue::TEXT: {
      const auto text = value.as<capnp::Text>();
      volatile char last = text.begin()[text.size()];  // the terminator belongs to it
      (void)last;
      return;
    }
    case capnp::DynamicValue::DATA: {
      const auto data = value.as<capnp::Data>();
      volatile std::uint8_t last = data.size() > 0 ? data[data.size() - 1] : std::uint8_t{0};
      (void)last;
      return;
    }
    default:
      return;  // numbers were read with the section they lie in
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const auto& frame :
       {dsec::proto::frame::from_bytes(bytes), dsec::proto::frame::from_packed(bytes)}) {
    if (!frame) continue;
    auto outcome = dsec::proto::view<dsec::proto::Request>(*frame).read(
        [](dsec::proto::Request::Reader request) { read_all(request); });
    (void)outcome;
  }
  return 0;
}
