// A listener on a free loopback port whose callbacks write down what happens. Thread-safe.
#pragma once

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "auth/api_key.hpp"
#include "net/listener.hpp"
#include "proto/client.capnp.h"

namespace dsec::net::test {

inline constexpr auto patience = std::chrono::seconds(10);

/// One Request as the bytes of a binary frame.
inline std::string ping_request(std::uint64_t id, std::size_t padding = 0) {
  capnp::MallocMessageBuilder builder;
  auto request = builder.initRoot<proto::Request>();
  request.setId(id);
  if (padding > 0) {
    request.getBody().initWriteFile().initData(static_cast<unsigned>(padding));
  } else {
    request.getBody().setPing();
  }
  const auto bytes = proto::frame::from_builder(builder);
  return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()};
}

class gateway_fixture {
 public:
  struct events {
    std::shared_ptr<ws_session> session;
    connection_info info;
    std::vector<proto::frame> messages;
    std::vector<base::error> malformed;
    int room = 0;
    int closed = 0;
    bool message_after_closed = false;
  };

  explicit gateway_fixture(base::gateway_config config = {}, const heartbeat& beat = {}) {
    config.port = 0;
    auto started = listener::start(config, callbacks(), beat);
    REQUIRE(started);
    door = *std::move(started);
  }
  ~gateway_fixture() { door->stop(); }

  /// Waits until the condition holds over the connections so far.
  bool eventually(const std::function<bool(const std::vector<events>&)>& condition,
                  std::chrono::milliseconds time = patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return condition(connections_); });
  }
  /// The i-th accepted WebSocket.
  std::shared_ptr<ws_session> session(std::size_t i = 0) {
    REQUIRE(eventually([i](const auto& all) { return all.size() > i; }));
    const std::lock_guard lock(mutex_);
    return connections_[i].session;
  }
  std::vector<events> seen() {
    const std::lock_guard lock(mutex_);
    return connections_;
  }
  /// Nobody holds the messages of the i-th connection any more.
  void forget_messages(std::size_t i = 0) {
    std::vector<proto::frame> gone;
    note([&] { gone.swap(connections_[i].messages); });
  }
  [[nodiscard]] std::uint16_t port() const { return door->port(); }

  std::shared_ptr<auth::gate> gate = std::make_shared<auth::gate>(
      std::vector{auth::known_key{"k-test", "tester", auth::hash_of("right-key")}});
  std::unique_ptr<listener> door;
  std::optional<proto::frame> answer_malformed;  // then the session is closed
  std::optional<proto::frame> answer;            // to every message
  std::atomic<bool> echo = false;  // answer every message with itself and grant the next

 private:
  listener_callbacks callbacks() {
    return {
        .gate = gate,
        .opened = [this](std::shared_ptr<ws_session> s,
                         connection_info info) { return record(std::move(s), std::move(info)); },
        .get = [](const http_get& asked) -> std::optional<http_answer> {
          if (asked.path == "/healthz")
            return http_answer{200, "application/json", "{\"ok\":true}\n"};
          if (asked.path == "/secret" && !asked.trusted) return needs_key();
          if (asked.path == "/secret") return http_answer{200, "text/plain", "told"};
          return std::nullopt;
        },
    };
  }

  session_handler record(std::shared_ptr<ws_session> s, connection_info info) {
    std::size_t mine = 0;
    note([&] {
      mine = connections_.size();
      connections_.push_back({s, std::move(info), {}, {}, 0, 0, false});
    });
    const std::weak_ptr<ws_session> weak = s;
    return {
        .message =
            [this, mine, weak](proto::frame f) {
              note([&] {
                connections_[mine].message_after_closed |= connections_[mine].closed > 0;
                connections_[mine].messages.push_back(f);
              });
              if (answer) return weak.lock()->send(*answer);
              if (!echo) return;
              if (const auto session = weak.lock()) {
                session->send(std::move(f));
                session->grant(1);
              }
            },
        .malformed =
            [this, mine, weak](base::error e) {
              note([&] { connections_[mine].malformed.push_back(e); });
              const auto session = weak.lock();
              if (!answer_malformed || !session) return;
              session->send(*answer_malformed);
              session->close(e.message);
            },
        .room = [this, mine] { note([&] { ++connections_[mine].room; }); },
        .closed = [this, mine] { note([&] { ++connections_[mine].closed; }); },
    };
  }

  void note(const std::function<void()>& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<events> connections_;
};

}  // namespace dsec::net::test
