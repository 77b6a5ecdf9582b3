// Checks of client-chosen text that create and exec share. Pure; errors name the field.
#pragma once

#include <capnp/blob.h>
#include <capnp/list.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "proto/client.capnp.h"

namespace dsec::actors {

/// Text of at most `most` bytes without NUL: what may become an argument, a path or a name.
base::result<std::string> text(capnp::Text::Reader value, std::string_view field,
                               std::size_t most = 4096);

/// The same, of a key that its client chose for a create; empty: none.
base::result<std::string> idempotency_key(capnp::Text::Reader value);

/// The same, and absolute when not empty.
base::result<std::string> absolute_path(capnp::Text::Reader value, std::string_view field);

/// NAME=VALUE strings, later ones of a name over earlier ones.
base::result<std::vector<std::string>> environment(capnp::List<proto::EnvVar>::Reader list,
                                                   std::string_view field);

/// `top`'s variables over `bottom`'s; order of first appearance is kept.
std::vector<std::string> overlay(std::vector<std::string> bottom,
                                 const std::vector<std::string>& top);

}  // namespace dsec::actors
