// The address at which a client on this host gets to the gateway. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.hpp"

namespace dsec::net {

/// ws://… or wss://… of a gateway that listens on `port`. One that is bound to every address is
/// reached over loopback: the address of "every" is nobody's, and Host may not name it.
std::string door_url(const base::gateway_config& gateway, std::uint16_t port);

}  // namespace dsec::net
