#include "base/config_rules.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/ids.hpp"
#include "base/log.hpp"

namespace dsec::base {
namespace {

/// Whether nobody but this host can be reached at an address, and reach it. What is none is left to
/// whoever uses it.
bool stays_on_this_host(std::string address) {
  address.erase(std::min(address.find('%'), address.size()));  // the interface of an IPv6 address
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24U == 127;
  if (::inet_pton(AF_INET6, address.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return true;
}

/// Of ADDRESS:PORT or [ADDRESS]:PORT.
std::string address_of(const std::string& place) {
  const auto address = place.substr(0, place.rfind(':'));
  const bool bracketed = address.starts_with('[') && address.ends_with(']');
  return bracketed ? address.substr(1, address.size() - 2) : address;
}

struct rules {
  const config& c;
  std::string_view origin;

  [[nodiscard]] tl::unexpected<error> bad(const std::string& text) const {
    return fail(errc::invalid_argument, std::string(origin) + ": " + text);
  }

  [[nodiscard]] result<void> gateway() const {
    const auto& g = c.gateway;
    if (g.tls_cert.empty() != g.tls_key.empty())
      return bad("gateway.tls_cert and gateway.tls_key go together: give both or none");
    if (g.tls_min_version != "1.2" && g.tls_min_version != "1.3")
      return bad("gateway.tls_min_version '" + g.tls_min_version + "' must be \"1.2\" or \"1.3\"");
    if (g.tls_cert.empty() && !g.allow_plaintext && !stays_on_this_host(g.bind)) {
      return bad(
          "gateway.bind '" + g.bind +
          "' can be reached from other hosts, and without TLS keys and commands could be read on "
          "the way: set gateway.tls_cert and gateway.tls_key, or gateway.allow_plaintext = true "
          "where the network is trusted");
    }
    return {};
  }

  [[nodiscard]] result<void> peer() const {
    const auto& p = c.peer;
    if (p.cert_file.empty() != p.key_file.empty())
      return bad("peer.cert_file and peer.key_file go together: give both or none");
    return p.coordinators.empty() ? peer_of_coordinator() : peer_of_worker();
  }

  [[nodiscard]] result<void> peer_of_coordinator() const {
    if (!c.peer.cert_file.empty()) {
      return bad(
          "peer.cert_file is a worker's, which has peer.coordinators: what a coordinator shows is "
          "gateway.tls_cert");
    }
    if (!c.peer.ca_file.empty() && c.gateway.tls_cert.empty()) {
      return bad(
          "peer.ca_file of a coordinator needs gateway.tls_cert and gateway.tls_key: its workers "
          "come to the gateway's port");
    }
    return {};
  }

  [[nodiscard]] result<void> peer_of_worker() const {
    const auto& p = c.peer;
    if (p.ca_file.empty() != p.cert_file.empty()) {
      return bad(
          "peer.ca_file, peer.cert_file and peer.key_file of a worker go together: each side of "
          "a link asks for the other's certificate");
    }
    for (const auto& place : p.coordinators) {
      if (!p.ca_file.empty() || stays_on_this_host(address_of(place))) continue;
      return bad("peer.coordinators has '" + place +
                 "', which is not on loopback, and a link there needs TLS: set peer.ca_file, "
                 "peer.cert_file and peer.key_file");
    }
    return {};
  }

  [[nodiscard]] result<void> names() const {
    for (const auto& [name, value] :
         {std::pair{"node.name", c.node.name}, {"node.instance", c.node.instance}}) {
      if (!is_valid_id(value) || value.size() > 40) {
        return bad(std::string(name) + " '" + value +
                   "' must be a-z, 0-9 and '-', at most 40 characters");
      }
    }
    if (log::level ignored{}; !log::parse_level(c.log_level, ignored))
      return bad("log_level '" + c.log_level + "' must be debug, info, warn or error");
    return {};
  }

  [[nodiscard]] result<void> uids() const {
    const std::uint64_t ranges_end =
        std::uint64_t{c.node.uid_base} + std::uint64_t{c.node.max_sandboxes} * 65'536;
    if (ranges_end > 4'294'967'294ULL) {
      return bad(
          "node.uid_base + node.max_sandboxes * 65536 is over the largest uid; lower one of them");
    }
    const std::uint64_t aether_end = std::uint64_t{c.node.aether_uid_base} + c.node.max_sandboxes;
    if (aether_end > c.node.uid_base && c.node.aether_uid_base < ranges_end) {
      return bad(
          "node.aether_uid_base overlaps the sandboxes' uids from node.uid_base on; move one of "
          "them");
    }
    return {};
  }
};

}  // namespace

result<void> check_rules(const config& c, std::string_view origin) {
  const rules r{c, origin};
  DSEC_CHECK(r.gateway());
  DSEC_CHECK(r.peer());
  DSEC_CHECK(r.names());
  return r.uids();
}

}  // namespace dsec::base
