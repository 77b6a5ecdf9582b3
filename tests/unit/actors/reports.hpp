// What clients ask a node about itself, and what they are told.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "node_fixture.hpp"

namespace dsec::test {

struct told_events {
  std::vector<std::string> kinds, traces, causes, sandboxes, edges, unreachable;
  std::string cursor;
  std::uint64_t dropped = 0;
};

/// Gives fn the reply to a request; false when there is none.
template <class F>
bool read_reply(const client& c, std::uint64_t id, F&& fn) {
  for (const auto& f : c.session->sent) {
    bool mine = false;
    const auto ok = proto::view<proto::Reply>(f).read([&](proto::Reply::Reader r) {
      mine = r.getId() == id;
      if (mine) fn(r);
    });
    REQUIRE(ok);
    if (mine) return true;
  }
  return false;
}

inline std::optional<told_events> events_of(const client& c, std::uint64_t id) {
  told_events out;
  const bool answered = read_reply(c, id, [&](proto::Reply::Reader reply) {
    REQUIRE(reply.getBody().isEvents());
    const auto events = reply.getBody().getEvents();
    for (const auto e : events.getEvents()) {
      out.kinds.emplace_back(e.getKind().cStr());
      out.traces.emplace_back(e.getTraceId().cStr());
      out.causes.emplace_back(e.getCause().cStr());
      out.sandboxes.emplace_back(e.getSandboxId().cStr());
      out.edges.emplace_back(e.getEdge().cStr());
    }
    for (const auto edge : reply.getUnreachable()) out.unreachable.emplace_back(edge.cStr());
    out.cursor = events.getCursor().cStr();
    out.dropped = events.getDropped();
  });
  return answered ? std::optional(out) : std::nullopt;
}

inline client::fill list_events(
    std::string after = {}, std::uint32_t wait_ms = 0,
    std::function<void(proto::ListEvents::Builder)> more = [](auto) {}) {
  return [=](proto::Request::Builder r) {
    auto e = r.getBody().initListEvents();
    e.setAfter(after.c_str());
    e.setWaitMs(wait_ms);
    more(e);
  };
}

inline client::fill traced(client::fill f, std::string trace) {
  return [f = std::move(f), trace = std::move(trace)](proto::Request::Builder r) {
    r.setTraceId(trace.c_str());
    f(r);
  };
}

inline client::fill get_usage(const std::string& id) {
  return [id](proto::Request::Builder r) { r.getBody().initGetUsage().setSandboxId(id.c_str()); };
}

inline client::fill list_nodes() {
  return [](proto::Request::Builder r) { r.getBody().setListNodes(); };
}

}  // namespace dsec::test
