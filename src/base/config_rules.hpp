// Rules between keys of a configuration, each of which is legal by itself. Pure; internal to
// src/base.
#pragma once

#include <string_view>

#include "base/config.hpp"

namespace dsec::base {

/// errc::invalid_argument: `origin`, the keys and what to do.
result<void> check_rules(const config& c, std::string_view origin);

}  // namespace dsec::base
