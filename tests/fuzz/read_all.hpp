// Reads every field of a message, as a handler that trusts nothing would. For fuzz targets.
#pragma once

#include <capnp/dynamic.h>

#include <cstdint>

namespace dsec::fuzz {

inline void read_all(const capnp::DynamicValue::Reader& value);

inline void read_struct(const capnp::DynamicStruct::Reader& value) {
  for (const auto field : value.getSchema().getNonUnionFields()) read_all(value.get(field));
  KJ_IF_MAYBE (member, value.which()) read_all(value.get(*member));
}

inline void read_all(const capnp::DynamicValue::Reader& value) {
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

}  // namespace dsec::fuzz
