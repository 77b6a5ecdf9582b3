// The first request of a connection: which protocol the client speaks, and its lease.
#include <string>
#include <utility>

#include "actors/replies.hpp"
#include "actors/ws_conn.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "proto/limits.hpp"

namespace dsec::actors {
namespace {

using base::errc;
using body = proto::Request::Body;

constexpr std::uint32_t shortest_lease_ms = 1000;
constexpr std::uint32_t longest_lease_ms = 86'400'000;

}  // namespace

void ws_conn_state::greet(std::uint64_t id, proto::Request::Reader request) {
  if (request.getBody().which() != body::HELLO) {
    args.session->send(
        error_reply(id, {errc::protocol, "the first request of a connection must be hello", 0}));
    return hang_up("no hello");
  }
  const auto version = request.getBody().getHello().getProtocolVersion();
  if (version != proto::protocol_version) {
    args.session->send(error_reply(
        id, {errc::unsupported,
             "protocol version " + std::to_string(version) + " is not spoken here; use version " +
                 std::to_string(proto::protocol_version),
             0}));
    return hang_up("protocol version");
  }
  auto lease = lease_of(request.getBody().getHello());
  if (!lease) {
    args.session->send(error_reply(id, lease.error()));
    return hang_up("lease");
  }
  greeted = true;
  if (*lease) {
    presence = args.node.leases->hold(args.from->principal, *lease);
    args.from = std::make_shared<const caller>(
        caller{args.from->principal, args.from->peer, *std::move(lease)});
  }
  const auto client = request.getBody().getHello().getClient();
  base::log::info("client_connected",
                  {{"peer", args.from->peer},
                   {"principal", args.from->principal},
                   {"client", base::shown({client.begin(), client.size()}, longest_trace)},
                   {"lease", args.from->lease.id}});
  send(hello_reply(id, args.node.edge_name));
}

base::result<lease> ws_conn_state::lease_of(proto::Hello::Reader hello) const {
  lease out;
  out.id.assign(hello.getLeaseId().begin(), hello.getLeaseId().size());
  if (out.id.empty()) return out;
  if (!base::is_valid_command_id(out.id))
    return base::fail(errc::invalid_argument, "leaseId must be 1 to 64 of A-Z a-z 0-9 . _ -");
  out.ms = hello.getLeaseMs();
  if (out.ms == 0) out.ms = static_cast<std::uint32_t>(args.node.default_lease.count());
  if (out.ms < shortest_lease_ms || out.ms > longest_lease_ms) {
    return base::fail(errc::invalid_argument, "leaseMs must be 0 (default) or " +
                                                  std::to_string(shortest_lease_ms) + " to " +
                                                  std::to_string(longest_lease_ms) + ", not " +
                                                  std::to_string(out.ms));
  }
  return out;
}

}  // namespace dsec::actors
