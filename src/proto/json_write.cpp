#include <capnp/dynamic.h>
#include <kj/encoding.h>

#include "base/text.hpp"
#include "proto/json.hpp"

namespace dsec::proto {
namespace {

void write(std::string& out, const capnp::DynamicValue::Reader& value, capnp::Type type);

void write_text(std::string& out, std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  if (!base::is_utf8(text)) return write_text(out, base::as_utf8(text));
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += {hex[static_cast<unsigned char>(c) >> 4U], hex[static_cast<unsigned char>(c) & 0xFU]};
    } else {
      out += c;
    }
  }
  out += '"';
}

void write_data(std::string& out, capnp::Data::Reader data) {
  const auto text = kj::encodeBase64(data);
  out += '"';
  out.append(text.begin(), text.size());
  out += '"';
}

void write_enum(std::string& out, const capnp::DynamicEnum& value) {
  KJ_IF_MAYBE (known, value.getEnumerant()) {
    return write_text(out, known->getProto().getName().cStr());
  }
  out += std::to_string(value.getRaw());
}

void write_list(std::string& out, const capnp::DynamicList::Reader& list) {
  out += '[';
  for (std::uint32_t i = 0; i < list.size(); ++i) {
    if (i > 0) out += ',';
    write(out, list[i], list.getSchema().getElementType());
  }
  out += ']';
}

void write_struct(std::string& out, const capnp::DynamicStruct::Reader& value) {
  char before = '{';
  const auto member = [&](capnp::StructSchema::Field field) {
    out += before;
    before = ',';
    write_text(out, field.getProto().getName().cStr());
    out += ':';
    write(out, value.get(field), field.getType());
  };
  for (const auto field : value.getSchema().getNonUnionFields()) member(field);
  KJ_IF_MAYBE (set, value.which()) {
    member(*set);
  }
  if (before == '{') out += '{';
  out += '}';
}

/// Beyond 2^53 a double, which is what most readers of JSON have, loses the last bits.
void write_wide(std::string& out, const std::string& number) {
  out += '"' + number + '"';
}

void write(std::string& out, const capnp::DynamicValue::Reader& value, capnp::Type type) {
  switch (value.getType()) {
    case capnp::DynamicValue::VOID:
      out += "null";
      return;
    case capnp::DynamicValue::BOOL:
      out += value.as<bool>() ? "true" : "false";
      return;
    case capnp::DynamicValue::INT:
      if (type.isInt64()) return write_wide(out, std::to_string(value.as<std::int64_t>()));
      out += std::to_string(value.as<std::int64_t>());
      return;
    case capnp::DynamicValue::UINT:
      if (type.isUInt64()) return write_wide(out, std::to_string(value.as<std::uint64_t>()));
      out += std::to_string(value.as<std::uint64_t>());
      return;
    case capnp::DynamicValue::TEXT: {
      const auto text = value.as<capnp::Text>();
      return write_text(out, {text.begin(), text.size()});
    }
    case capnp::DynamicValue::DATA:
      return write_data(out, value.as<capnp::Data>());
    case capnp::DynamicValue::LIST:
      return write_list(out, value.as<capnp::DynamicList>());
    case capnp::DynamicValue::ENUM:
      return write_enum(out, value.as<capnp::DynamicEnum>());
    case capnp::DynamicValue::STRUCT:
      return write_struct(out, value.as<capnp::DynamicStruct>());
    default:
      out += "null";
      return;  // of a kind the protocol does not hold (schema_test.cpp)
  }
}

}  // namespace

base::result<std::string> to_json(capnp::StructSchema root, const frame& message) {
  std::string out;
  DSEC_CHECK(guarded([&] {
    const auto words = message.words();
    capnp::FlatArrayMessageReader reader(words, reader_options(words.size()));
    write(out, reader.getRoot<capnp::DynamicStruct>(root), root);
  }));
  return out;
}

}  // namespace dsec::proto
