// The protocol's second encoding: the messages of client.capnp as text, in the form of Cap'n
// Proto's JSON codec (capnp/compat/json.h), for browsers and people. Ours, because that codec lets
// an unknown member of a union, two members at once, text that is not UTF-8 and numbers over 2^53
// pass in silence. Pure; any thread.
//
//   struct, group  object; unknown names are ignored, missing or null members have their default
//   union          the one member that is set; Void is null
//   Text           string          Data   string, base64 (RFC 4648, 4)
//   enum           its name        64-bit integers  strings; whole numbers are understood too
#pragma once

#include <capnp/schema.h>

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "proto/frame.hpp"

namespace dsec::proto {

/// Values in one text: what a parser needs for each is many times its text.
inline constexpr std::size_t max_json_values = 65'536;

/// The message whose root is `root`. errc::protocol naming the member ("body.exec.argv[2]") when
/// the text is not JSON or does not fit the schema, errc::too_large over max_message_bytes or
/// max_json_values.
base::result<frame> from_json(capnp::StructSchema root, std::string_view text);

/// Every member that is not in a union is there. Bytes of Text that are no UTF-8 become U+FFFD.
/// errc::protocol when `message` is malformed inside.
base::result<std::string> to_json(capnp::StructSchema root, const frame& message);

}  // namespace dsec::proto
