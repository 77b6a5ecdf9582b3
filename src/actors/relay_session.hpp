// The socket side of a client's connection that is a coordinator's: what its ws_conn sends goes
// over the link, as the answer to a call. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "actors/interfaces.hpp"
#include "net/listener.hpp"

namespace dsec::actors {

class relay_session final : public net::ws_session {
 public:
  /// Large replies are made only while less than this waits for the link's socket.
  static constexpr std::size_t queue_level = 64U << 20U;

  relay_session(std::shared_ptr<net::ws_session> link, std::uint64_t channel)
      : link_(std::move(link)), channel_(channel) {}

  /// Before anything is sent to it.
  void serve(ws_conn_actor connection) { connection_ = std::move(connection); }
  /// The other end of the channel is gone, or the link is: its connection ends.
  void cut();
  /// There is room again, if it was told that there was none.
  void room();

  void send(proto::frame f) override;
  void send_then_pack(proto::frame f) override { send(std::move(f)); }  // links are not packed
  bool is_text() override { return false; }
  bool queued_at_most(std::size_t) override;
  void grant(std::uint32_t) override {}  // its client's coordinator counts
  void close(std::string reason) override;
  void leave(std::string reason) override { close(std::move(reason)); }
  /// Whose key is good no longer is the coordinator's to say.
  void expel(std::string reason) override { close(std::move(reason)); }

 private:
  std::shared_ptr<net::ws_session> link_;
  const std::uint64_t channel_;
  ws_conn_actor connection_;
  std::atomic<bool> closed_ = false;
  std::atomic<bool> waits_ = false;  // for room
};

}  // namespace dsec::actors
