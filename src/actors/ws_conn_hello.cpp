// The first request of a connection: which protocol the client speaks, what it wants of it, and its
// lease.
#include <algorithm>
#include <string>
#include <string_view>
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

/// The newest version that both speak.
base::result<std::uint32_t> common_version(proto::Hello::Reader hello) {
  const auto newest = hello.getProtocolVersion();
  const auto oldest = hello.getOldestVersion() == 0 ? newest : hello.getOldestVersion();
  if (oldest <= newest && oldest <= proto::protocol_version &&
      newest >= proto::oldest_protocol_version)
    return std::min(newest, proto::protocol_version);
  return base::fail(errc::unsupported,
                    "protocol version " + std::to_string(oldest) +
                        (oldest == newest ? "" : " to " + std::to_string(newest)) +
                        " is not spoken here; use version " +
                        std::to_string(proto::protocol_version));
}

bool wants(proto::Hello::Reader hello, std::string_view feature) {
  for (const auto wanted : hello.getFeatures()) {
    if (std::string_view(wanted.begin(), wanted.size()) == feature) return true;
  }
  return false;
}

base::result<hello_answer> agree(proto::Hello::Reader hello, bool as_text) {
  hello_answer out;
  DSEC_TRY(out.version, common_version(hello));
  if (hello.getFeatures().size() > proto::max_features) {
    return base::fail(errc::invalid_argument,
                      "hello names more than " + std::to_string(proto::max_features) + " features");
  }
  switch (hello.getPacking()) {
    case proto::Packing::NONE:
      break;
    case proto::Packing::PACKED:
      out.packed = true;
      break;
    default:
      return base::fail(errc::unsupported,
                        "this server does not know the packing; use none or packed");
  }
  if (out.packed && as_text)
    return base::fail(errc::invalid_argument, "text messages cannot be packed; leave packing out");
  return out;
}

}  // namespace

void ws_conn_state::greet(std::uint64_t id, proto::Request::Reader request) {
  if (request.getBody().which() != body::HELLO) {
    write(error_reply(id, {errc::protocol, "the first request of a connection must be hello", 0}));
    return hang_up("no hello");
  }
  const auto hello = request.getBody().getHello();
  auto agreed = agree(hello, args.session->is_text());
  if (!agreed) {
    write(error_reply(id, agreed.error()));
    return hang_up(agreed.error().message);
  }
  auto lease = lease_of(hello);
  if (!lease) {
    write(error_reply(id, lease.error()));
    return hang_up("lease");
  }
  greeted = true;
  may_stream = wants(hello, proto::feature_streams);
  if (*lease) {
    presence = args.node.leases->hold(args.from->principal, *lease);
    args.from = std::make_shared<const caller>(
        caller{args.from->principal, args.from->peer, *std::move(lease)});
  }
  const auto client = hello.getClient();
  base::log::info("client_connected",
                  {{"peer", args.from->peer},
                   {"principal", args.from->principal},
                   {"client", base::shown({client.begin(), client.size()}, longest_trace)},
                   {"lease", args.from->lease.id}});
  agreed->edge = args.node.edge_name;
  const auto answer = hello_reply(id, *agreed);
  if (!agreed->packed) return send(answer);
  args.node.metrics->sent_bytes.add(answer.bytes().size());
  args.session->send_then_pack(answer);
  args.session->grant(1);
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
