// One end of a link in a test, and a connector to dial with. Thread-safe.
#pragma once

#include <catch2/catch.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "net/peer_connector.hpp"
#include "unit/net/gateway_fixture.hpp"

namespace dsec::net::test {

inline std::unique_ptr<peer_connector> start(const base::config& config) {
  auto started = peer_connector::start(config);
  REQUIRE(started);
  return *std::move(started);
}

/// What happened to one end, for another thread to wait for.
struct end {
  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<ws_session> session;
  std::vector<std::size_t> sizes;  // of messages
  std::vector<base::error> failures;
  int closed = 0;

  session_handler serve(std::shared_ptr<ws_session> s) {
    s->grant(100);
    note([&] { session = std::move(s); });
    return {.message =
                [this](const proto::frame& f) { note([&] { sizes.push_back(f.bytes().size()); }); },
            .malformed = [this](base::error e) { note([&] { failures.push_back(std::move(e)); }); },
            .room = {},
            .closed = [this] { note([&] { ++closed; }); }};
  }
  void dial(peer_connector& connector, const peer_address& to) {
    connector.connect(
        to, [this](auto s, const auto&) { return serve(std::move(s)); },
        [this](base::error e) { fail(std::move(e)); });
  }
  void fail(base::error e) {
    note([&] { failures.push_back(std::move(e)); });
  }
  template <class F>
  void note(F f) {
    const std::lock_guard lock(mutex);
    f();
    changed.notify_all();
  }
  template <class F>
  bool eventually(F f) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, patience, f);
  }
};

}  // namespace dsec::net::test
