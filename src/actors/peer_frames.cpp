#include "actors/peer_frames.hpp"

#include <capnp/message.h>

#include <algorithm>
#include <string>

#include "proto/text.hpp"

namespace dsec::actors {
namespace {

using body = proto::PeerMessage::Body;

template <class Fill>
proto::frame make(Fill&& fill) {
  capnp::MallocMessageBuilder message;
  fill(message.initRoot<proto::PeerMessage>().initBody());
  return proto::frame::from_builder(message);
}

capnp::Data::Reader data(const proto::frame& f) {
  const auto bytes = f.bytes();
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}

std::uint32_t milliseconds_until(time_point at, time_point now) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(at - now).count();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(left, 1, UINT32_MAX));
}

}  // namespace

proto::frame challenge_frame(std::string_view nonce, std::string_view proof) {
  return make([&](body::Builder b) {
    auto challenge = b.initChallenge();
    challenge.setNonce(std::string(nonce));
    challenge.setProof(std::string(proof));
  });
}

proto::frame proof_frame(std::string_view proof) {
  return make([&](body::Builder b) { b.setProof(std::string(proof)); });
}

proto::frame welcome_frame() {
  return make([](body::Builder b) { b.setWelcome(); });
}

proto::frame refused_frame(const base::error& why) {
  return make([&](body::Builder b) {
    auto refused = b.initRefused();
    refused.setCode(std::string(base::to_string(why.code)));
    refused.setMessage(why.message);
  });
}

proto::frame report_frame(const node_report& report) {
  return make([&](body::Builder b) {
    auto r = b.initReport();
    const auto& [now, policy, waiting, draining] = report.load;
    r.setSlots(policy.slots);
    r.setSlotsUsed(now.slots_used);
    r.setWaiting(waiting);
    r.setMemoryTotal(now.memory.total);
    r.setMemoryAvailable(now.memory.available);
    r.setMemoryReserve(policy.reserve_bytes);
    r.setMemoryOvercommit(policy.overcommit);
    r.setLimitsBytes(now.limits_bytes);
    r.setSettlingBytes(now.settling_bytes);
    r.setCreates(report.creates);
    r.setDraining(draining);
    r.setUnhealthy(report.unhealthy);
    r.setImagesChanged(report.images.has_value());
    if (!report.images) return;
    auto images = r.initImages(static_cast<unsigned>(report.images->size()));
    for (unsigned i = 0; i < images.size(); ++i) images.set(i, (*report.images)[i]);
  });
}

proto::frame leases_frame(const std::vector<lease_changed>& changes) {
  return make([&](body::Builder b) {
    auto all = b.initLeases(static_cast<unsigned>(changes.size()));
    for (unsigned i = 0; i < all.size(); ++i) {
      all[i].setPrincipal(changes[i].principal);
      all[i].setLeaseId(changes[i].what.id);
      all[i].setLeaseMs(changes[i].what.ms);
      all[i].setHeld(changes[i].held);
    }
  });
}

proto::frame open_channel_frame(std::uint64_t channel, const caller& from) {
  return make([&](body::Builder b) {
    auto open = b.initOpenChannel();
    open.setChannel(channel);
    open.setPrincipal(from.principal);
    open.setPeer(from.peer);
    open.setLeaseId(from.lease.id);
    open.setLeaseMs(from.lease.ms);
  });
}

proto::frame close_channel_frame(std::uint64_t channel) {
  return make([&](body::Builder b) { b.setCloseChannel(channel); });
}

proto::frame channel_closed_frame(std::uint64_t channel) {
  return make([&](body::Builder b) { b.setChannelClosed(channel); });
}

proto::frame request_frame(std::uint64_t channel, std::uint64_t call_id, const call& c,
                           time_point now, bool say_taken) {
  return make([&](body::Builder b) {
    auto request = b.initRequest();
    request.setChannel(channel);
    request.setCallId(call_id);
    request.setLeftMs(milliseconds_until(c.deadline, now));
    request.setTraceId(c.trace);
    if (c.admit_by) request.setAdmitMs(milliseconds_until(*c.admit_by, now));
    request.setRequest(data(c.request.frame()));
    request.setSayTaken(say_taken);
  });
}

proto::frame taken_frame(std::uint64_t call_id) {
  return make([&](body::Builder b) { b.setTaken(call_id); });
}

proto::frame relayed_reply_frame(std::uint64_t call_id, const proto::frame& reply) {
  return make([&](body::Builder b) {
    auto out = b.initReply();
    out.setCallId(call_id);
    out.setReply(data(reply));
  });
}

proto::frame find_key_frame(std::uint64_t call_id, const find_key& m) {
  return make([&](body::Builder b) {
    auto key = b.initFindKey();
    key.setCallId(call_id);
    key.setPrincipal(m.principal);
    key.setKey(m.key);
  });
}

proto::frame found_key_frame(std::uint64_t call_id, key_state state) {
  return make([&](body::Builder b) {
    auto found = b.initFoundKey();
    found.setCallId(call_id);
    found.setUsed(state == key_state::used);
    found.setWithdrawn(state == key_state::withdrawn);
  });
}

node_report read_report(proto::PeerReport::Reader r) {
  node_report out;
  auto& [now, policy, waiting, draining] = out.load;
  policy = {r.getSlots(), r.getMemoryReserve(), r.getMemoryOvercommit()};
  now.slots_used = r.getSlotsUsed();
  now.memory = {r.getMemoryTotal(), r.getMemoryAvailable()};
  now.limits_bytes = r.getLimitsBytes();
  now.settling_bytes = r.getSettlingBytes();
  waiting = r.getWaiting();
  draining = r.getDraining();
  out.creates = r.getCreates();
  out.unhealthy = proto::text_of(r.getUnhealthy());
  if (!r.getImagesChanged()) return out;
  out.images.emplace();
  for (const auto image : r.getImages()) out.images->push_back(proto::text_of(image));
  return out;
}

std::vector<lease_changed> read_leases(capnp::List<proto::PeerLease>::Reader leases) {
  std::vector<lease_changed> out;
  for (const auto l : leases) {
    out.push_back({proto::text_of(l.getPrincipal()),
                   {proto::text_of(l.getLeaseId()), l.getLeaseMs()},
                   l.getHeld()});
  }
  return out;
}

caller read_channel(proto::OpenChannel::Reader channel) {
  return {proto::text_of(channel.getPrincipal()),
          proto::text_of(channel.getPeer()),
          {proto::text_of(channel.getLeaseId()), channel.getLeaseMs()}};
}

relayed read_relayed(proto::PeerRequest::Reader request) {
  relayed out;
  out.id = request.getCallId();
  out.left = std::chrono::milliseconds(request.getLeftMs());
  if (request.getAdmitMs() != 0) out.admit = std::chrono::milliseconds(request.getAdmitMs());
  out.trace = proto::text_of(request.getTraceId());
  return out;
}

key_state read_key_state(proto::PeerKeyState::Reader state) {
  if (state.getUsed()) return key_state::used;
  return state.getWithdrawn() ? key_state::withdrawn : key_state::unknown;
}

}  // namespace dsec::actors
