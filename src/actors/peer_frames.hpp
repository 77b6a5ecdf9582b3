// Builds and reads the messages of the peer link (proto/peer.capnp). Pure, any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "actors/cluster_interfaces.hpp"
#include "proto/frame.hpp"
#include "proto/peer.capnp.h"

namespace dsec::actors {

proto::frame challenge_frame(std::string_view nonce, std::string_view proof);
proto::frame proof_frame(std::string_view proof);
proto::frame welcome_frame();
proto::frame refused_frame(const base::error& why);
proto::frame report_frame(const node_report& report);
proto::frame leases_frame(const std::vector<lease_changed>& changes);
proto::frame open_channel_frame(std::uint64_t channel, const caller& from);
proto::frame close_channel_frame(std::uint64_t channel);
proto::frame channel_closed_frame(std::uint64_t channel);
/// `c` under another id, with what is left of its time; the worker says when it has taken it.
proto::frame request_frame(std::uint64_t channel, std::uint64_t call_id, const call& c,
                           time_point now, bool say_taken);
proto::frame taken_frame(std::uint64_t call_id);
proto::frame relayed_reply_frame(std::uint64_t call_id, const proto::frame& reply);
proto::frame find_key_frame(std::uint64_t call_id, const find_key& m);
proto::frame found_key_frame(std::uint64_t call_id, key_state state);

node_report read_report(proto::PeerReport::Reader report);
std::vector<lease_changed> read_leases(capnp::List<proto::PeerLease>::Reader leases);
caller read_channel(proto::OpenChannel::Reader channel);
relayed read_relayed(proto::PeerRequest::Reader request);
key_state read_key_state(proto::PeerKeyState::Reader state);

}  // namespace dsec::actors
