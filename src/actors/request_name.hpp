// A request's name as the schema has it, for logs and metrics. Pure.
#pragma once

#include <string_view>

#include "proto/client.capnp.h"

namespace dsec::actors {

/// "unknown" for one of a newer client.
std::string_view name_of(proto::Request::Body::Which which);

}  // namespace dsec::actors
