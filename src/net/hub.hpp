// What the listener's connections share: the I/O context, callbacks and the list of who is there,
// so that stop() reaches everybody. Internal to src/net. Held by every connection, so the context
// outlives the last of them, even one that an actor still holds after the listener is gone. Every
// method is thread-safe.
#pragma once

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/listener.hpp"
#include "net/turns.hpp"

namespace boost::asio::ssl {
class context;
}

namespace dsec::net {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using executor = asio::strand<asio::io_context::executor_type>;
using socket = asio::basic_stream_socket<tcp, executor>;
using timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>, executor>;

/// One connection in whichever state. Methods may be called on any thread and only post.
class peer {
 public:
  virtual ~peer() = default;
  /// Says good-bye and ends soon.
  virtual void wind_down() = 0;
  /// Ends now; the other side sees a reset.
  virtual void abort() = 0;
};

class hub {
 public:
  using id = std::uint64_t;

  hub(const base::gateway_config& config, listener_callbacks callbacks, const heartbeat& beat,
      std::filesystem::path peer_ca = {})
      : callbacks(std::move(callbacks)),
        beat(beat),
        peer_ca(std::move(peer_ca)),
        max_connections_(config.max_connections) {}

  /// What new connections begin with; empty: no TLS.
  void set_certificate(std::shared_ptr<asio::ssl::context> c);
  std::shared_ptr<asio::ssl::context> certificate();

  void set_max_connections(std::size_t n);

  asio::io_context context;
  /// Large messages become text, and are made of it, here: meanwhile the I/O threads serve others.
  turns coders;
  const listener_callbacks callbacks;
  const heartbeat beat;
  const std::filesystem::path peer_ca;  // who signs the certificates of the other ends of links
  std::uint16_t port = 0;

  /// Registers a connection. Over the limit it is let in all the same, to be told so, while there
  /// is room in the small waiting room behind the limit; nullopt beyond that or when stopping:
  /// close it.
  struct admission {
    id who = 0;
    bool over_limit = false;
  };
  std::optional<admission> enter();
  /// It is a client with this API key. False when as many with that key are there as may be: half
  /// of all, so that no key keeps all others out.
  bool claim(id who, const std::string& key_id);
  /// It says that it is a worker. Workers have places of their own, so that no crowd of clients
  /// keeps one out; while it has not proven that, it holds its place only until max_unproven
  /// others have come. False when there is no place.
  bool become_worker(id who);
  void prove(id who);
  /// Says whom stop() must reach under this id: first the HTTP connection, then the session it
  /// became.
  void attach(id who, std::weak_ptr<peer> p);
  void leave(id who);

  /// No one enters any more; everyone there is told to wind down.
  void close_door();
  void abort_all();
  /// Whether everyone left within `patience`.
  bool wait_empty(std::chrono::milliseconds patience);

 private:
  static constexpr std::size_t waiting_room = 64;
  static constexpr std::size_t max_workers = 4096;
  static constexpr std::size_t max_unproven = 64;

  struct entry {
    std::weak_ptr<peer> reached;
    bool worker = false;
    std::optional<std::string> key_id{};  // of a client that has shown one
  };

  std::vector<std::shared_ptr<peer>> present();
  [[nodiscard]] std::size_t clients() const { return peers_.size() - workers_; }

  std::mutex mutex_;
  std::size_t max_connections_;
  std::shared_ptr<asio::ssl::context> certificate_;
  std::condition_variable emptied_;
  std::unordered_map<id, entry> peers_;
  std::size_t workers_ = 0;  // of them
  std::deque<id> unproven_;  // of those, in the order in which they came
  std::unordered_map<std::string, std::size_t> by_key_;  // of the others
  id next_ = 1;
  bool closed_ = false;
};

/// A connection's place in the hub, given back by the destructor.
class hub_place {
 public:
  hub_place(std::shared_ptr<hub> h, hub::id who) : hub_(std::move(h)), who_(who) {}
  ~hub_place() { leave(); }
  hub_place(hub_place&& other) noexcept : hub_(std::move(other.hub_)), who_(other.who_) {}
  hub_place& operator=(hub_place&&) = delete;

  void attach(std::weak_ptr<peer> p) { hub_->attach(who_, std::move(p)); }
  bool claim(const std::string& key_id) { return hub_->claim(who_, key_id); }
  bool become_worker() { return hub_->become_worker(who_); }
  void prove() {
    if (hub_) hub_->prove(who_);
  }
  void leave() {
    if (hub_) std::exchange(hub_, nullptr)->leave(who_);
  }

 private:
  std::shared_ptr<hub> hub_;
  hub::id who_;
};

}  // namespace dsec::net
