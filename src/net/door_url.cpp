#include "net/door_url.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace dsec::net {
namespace {

std::string reachable(const std::string& bind) {
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, bind.c_str(), &v4) == 1 && v4.s_addr == INADDR_ANY) return "127.0.0.1";
  if (::inet_pton(AF_INET6, bind.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6)) return "::1";
  return bind;
}

}  // namespace

std::string door_url(const base::gateway_config& gateway, std::uint16_t port) {
  const auto host = reachable(gateway.bind);
  const bool v6 = host.find(':') != std::string::npos;
  return (gateway.tls_cert.empty() ? "ws://" : "wss://") + (v6 ? "[" + host + "]" : host) + ":" +
         std::to_string(port);
}

}  // namespace dsec::net
