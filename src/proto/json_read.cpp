#include <capnp/dynamic.h>
#include <kj/encoding.h>

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_shape.hpp"
#include "base/text.hpp"
#include "proto/json.hpp"

namespace dsec::proto {
namespace {

using base::errc;
using base::fail;
using base::result;
using nlohmann::json;

/// Objects and lists may alternate.
constexpr std::size_t max_json_depth = std::size_t{2} * nesting_limit;
constexpr std::size_t shown_bytes = 80;

result<json> parse(std::string_view text) {
  const auto shape = base::shape_of_json(text);
  if (shape.depth > max_json_depth) return fail(errc::too_large, "the message nests too deep");
  if (shape.values > max_json_values)
    return fail(errc::too_large, "the message holds too many values");
  try {
    return json::parse(text);
  } catch (const json::parse_error& e) {
    return fail(errc::protocol, "the message is not JSON at byte " + std::to_string(e.byte));
  } catch (const json::exception& e) {  // such as a number that no double holds
    return fail(errc::protocol, "the message is not JSON (" + std::to_string(e.id) + ")");
  }
}

/// Fills a message; knows the way to the value at hand, for what it says of it.
class filler {
 public:
  result<void> fill(capnp::DynamicStruct::Builder into, const json& object);

 private:
  result<void> member(capnp::DynamicStruct::Builder into, capnp::StructSchema::Field field,
                      const json& value);
  result<void> list(capnp::DynamicList::Builder into, const json& values);
  result<void> element(capnp::DynamicList::Builder into, std::uint32_t i, const json& value);
  /// What a member or an element that is no struct and no list is set to.
  template <class Set>
  result<void> plain(capnp::Type type, const json& value, const Set& set);
  template <class Int, class Set>
  result<void> number(const json& value, const Set& set);

  [[nodiscard]] tl::unexpected<base::error> refuse(const std::string& why) const {
    return fail(
        errc::protocol,
        (way_.empty() ? std::string("the message") : base::shown(way_, shown_bytes)) + " " + why);
  }

  /// Runs with the way one step further.
  template <class F>
  result<void> at(const std::string& step, F&& f) {
    const auto before = way_.size();
    way_ += step;
    auto done = f();
    way_.resize(before);
    return done;
  }

  std::string way_;
};

result<void> filler::fill(capnp::DynamicStruct::Builder into, const json& object) {
  if (!object.is_object()) return refuse("must be an object");
  std::string chosen;
  for (const auto& [name, value] : object.items()) {
    KJ_IF_MAYBE (field,
                 into.getSchema().findFieldByName(kj::StringPtr(name.c_str(), name.size()))) {
      if (field->getProto().getDiscriminantValue() != capnp::schema::Field::NO_DISCRIMINANT) {
        if (!chosen.empty()) return refuse("has two members, " + chosen + " and " + name);
        chosen = name;
      } else if (value.is_null()) {
        continue;
      }
      DSEC_CHECK(at((way_.empty() ? "" : ".") + name, [&] { return member(into, *field, value); }));
    }
  }
  return {};
}

result<void> filler::member(capnp::DynamicStruct::Builder into, capnp::StructSchema::Field field,
                            const json& value) {
  const auto type = field.getType();
  if (type.isStruct()) return fill(into.init(field).as<capnp::DynamicStruct>(), value);
  if (type.isList()) {
    if (!value.is_array()) return refuse("must be a list");
    const auto size = static_cast<std::uint32_t>(value.size());
    return list(into.init(field, size).as<capnp::DynamicList>(), value);
  }
  return plain(type, value, [&](const capnp::DynamicValue::Reader& v) { into.set(field, v); });
}

result<void> filler::list(capnp::DynamicList::Builder into, const json& values) {
  for (std::uint32_t i = 0; i < into.size(); ++i) {
    DSEC_CHECK(at("[" + std::to_string(i) + "]", [&] { return element(into, i, values[i]); }));
  }
  return {};
}

result<void> filler::element(capnp::DynamicList::Builder into, std::uint32_t i, const json& value) {
  const auto type = into.getSchema().getElementType();
  if (type.isStruct()) return fill(into[i].as<capnp::DynamicStruct>(), value);
  if (type.isList()) {
    if (!value.is_array()) return refuse("must be a list");
    const auto size = static_cast<std::uint32_t>(value.size());
    return list(into.init(i, size).as<capnp::DynamicList>(), value);
  }
  return plain(type, value, [&](const capnp::DynamicValue::Reader& v) { into.set(i, v); });
}

template <class Set>
result<void> filler::plain(capnp::Type type, const json& value, const Set& set) {
  using which = capnp::schema::Type;
  switch (type.which()) {
    case which::VOID:
      if (!value.is_null()) return refuse("must be null");
      set(capnp::VOID);
      return {};
    case which::BOOL:
      if (!value.is_boolean()) return refuse("must be true or false");
      set(value.get<bool>());
      return {};
    case which::INT8:
      return number<std::int8_t>(value, set);
    case which::INT16:
      return number<std::int16_t>(value, set);
    case which::INT32:
      return number<std::int32_t>(value, set);
    case which::INT64:
      return number<std::int64_t>(value, set);
    case which::UINT8:
      return number<std::uint8_t>(value, set);
    case which::UINT16:
      return number<std::uint16_t>(value, set);
    case which::UINT32:
      return number<std::uint32_t>(value, set);
    case which::UINT64:
      return number<std::uint64_t>(value, set);
    case which::TEXT: {
      if (!value.is_string()) return refuse("must be a string");
      const auto& text = value.get_ref<const std::string&>();
      set(capnp::Text::Reader(text.c_str(), text.size()));
      return {};
    }
    case which::DATA: {
      if (!value.is_string()) return refuse("must be a string in base64");
      const auto& text = value.get_ref<const std::string&>();
      const auto bytes = kj::decodeBase64(kj::arrayPtr(text.data(), text.size()));
      if (bytes.hadErrors) return refuse("is not base64");
      set(capnp::Data::Reader(bytes));
      return {};
    }
    case which::ENUM: {
      if (!value.is_string()) return refuse("must be a name");
      const auto& text = value.get_ref<const std::string&>();
      KJ_IF_MAYBE (known,
                   type.asEnum().findEnumerantByName(kj::StringPtr(text.c_str(), text.size()))) {
        set(capnp::DynamicEnum(*known));
        return {};
      }
      return refuse("cannot be '" + base::shown(text, shown_bytes) + "'");
    }
    default:
      return refuse("has a type that this encoding does not know");
  }
}

/// A whole number, or one in a string: what lies beyond 2^53 can be said exactly only so.
template <class Int, class Set>
result<void> filler::number(const json& value, const Set& set) {
  Int exact{};
  bool fits = false;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exact);
    fits = error == std::errc{} && end == text.data() + text.size();
  } else if (value.is_number_unsigned()) {
    const auto given = value.get<std::uint64_t>();
    fits = std::in_range<Int>(given);
    exact = static_cast<Int>(given);
  } else if (value.is_number_integer()) {
    const auto given = value.get<std::int64_t>();
    fits = std::in_range<Int>(given);
    exact = static_cast<Int>(given);
  }
  if (!fits) {
    return refuse("must be a whole number from " + std::to_string(std::numeric_limits<Int>::min()) +
                  " to " + std::to_string(std::numeric_limits<Int>::max()));
  }
  set(exact);
  return {};
}

}  // namespace

result<frame> from_json(capnp::StructSchema root, std::string_view text) {
  DSEC_CHECK(check_message_size(text.size()));
  DSEC_TRY(const auto parsed, parse(text));
  capnp::MallocMessageBuilder message;
  result<void> filled;
  DSEC_CHECK(guarded(
      [&] { filled = filler().fill(message.initRoot<capnp::DynamicStruct>(root), parsed); }));
  DSEC_CHECK(filled);
  return frame::from_builder(message);
}

}  // namespace dsec::proto
