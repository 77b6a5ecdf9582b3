// How a session begins: the handshake, what is set up for it, and what the two kinds of traffic may
// come to.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "net/request_policy.hpp"
#include "net/session.hpp"
#include "proto/peer.hpp"

namespace dsec::net {
namespace {

using namespace std::chrono_literals;

// A peer that acknowledges nothing or keeps its window shut is given up by TCP itself (tcp(7)).
constexpr int unsent_limit_ms = 60'000;

}  // namespace

session::session(std::shared_ptr<hub> h, wire w, hub_place place, connection_info info,
                 session_opened opened, const traffic& t)
    : hub_(std::move(h)),
      place_(std::move(place)),
      principal_(info.principal),
      info_(std::move(info)),
      opened_(std::move(opened)),
      traffic_(t),
      strand_(w.get_executor()),
      stream_(std::in_place, std::move(w)),
      timer_(strand_),
      encoding_(t.fixed) {}

void session::connect(const std::string& host, const std::string& path,
                      std::function<void(base::error)> failed) {
  place_.attach(weak_from_this());
  configure();
  auto answer = std::make_shared<websocket::response_type>();
  stream_->async_handshake(
      *answer, host, path,
      operation([host, path, answer, failed = std::move(failed)](session& s, error_code problem) {
        if (problem) {
          auto why = problem == websocket::error::upgrade_declined ? read_error_body(answer->body())
                                                                   : std::nullopt;
          if (!why) why = base::error{base::errc::unavailable, problem.message(), 0};
          why->message = host + path + " does not take the connection: " + why->message;
          failed(*std::move(why));
        }
        s.accepted(problem);
      }));
}

void session::start(http_request upgrade) {
  place_.attach(weak_from_this());
  configure();
  choose_subprotocol(upgrade);
  auto request = std::make_shared<http_request>(std::move(upgrade));
  stream_->async_accept(
      *request, operation([request](session& s, error_code problem) { s.accepted(problem); }));
}

bool session::is_text() {
  const std::lock_guard lock(mutex_);
  return encoding_ == encoding::text;
}

void session::trust() {
  const std::lock_guard lock(mutex_);
  on_strand([](session& s) {
    s.stream_->read_message_max(s.traffic_.message);
    s.place_.prove();
  });
}

void session::choose_subprotocol(const http_request& upgrade) {
  const beast::string_view offered = upgrade[beast::http::field::sec_websocket_protocol];
  std::string subprotocol(chosen_subprotocol({offered.data(), offered.size()}));
  stream_->set_option(websocket::stream_base::decorator(
      [subprotocol = std::move(subprotocol)](websocket::response_type& response) {
        response.set(beast::http::field::server, "dsecd");
        // A browser gives up when none of those that it has offered comes back.
        if (!subprotocol.empty())
          response.set(beast::http::field::sec_websocket_protocol, subprotocol);
      }));
}

void session::configure() {
  const int limit = unsent_limit_ms;
  // Best effort: without it a shut window is held until the queue overflows.
  ::setsockopt(stream_->next_layer().tcp_socket().native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT,
               &limit, sizeof limit);
  // Beast's idle timer would be re-armed on every message and runs out while no credit lets us
  // read: watch() does its work.
  stream_->set_option(
      websocket::stream_base::timeout{close_patience, websocket::stream_base::none(), false});
  stream_->control_callback(
      [this](websocket::frame_type, beast::string_view) { heard_ = steady::now(); });
  stream_->binary(true);
  stream_->auto_fragment(false);
  stream_->read_message_max(traffic_.first_message);
}

void session::accepted(error_code problem) {
  if (problem || state_ == state::dead) return die();
  state_ = state::open;
  handler_ = opened_(shared_from_this(), std::move(info_));
  watch_in(traffic_.beat.ping);
}

traffic client_traffic(const heartbeat& beat) {
  return {proto::max_message_bytes, proto::max_message_bytes, proto::max_pending_bytes,
          proto::max_queued_bytes,  encoding::undecided,      beat};
}

const traffic peer_traffic{proto::max_peer_hello_bytes,
                           proto::max_peer_message_bytes,
                           proto::max_peer_queued_bytes,
                           proto::max_peer_queued_bytes,
                           encoding::binary,
                           {2000ms, 8000ms, 300'000ms}};

void serve_websocket(std::shared_ptr<hub> h, wire w, hub_place place, http_request upgrade,
                     connection_info info, session_opened opened, const traffic& t) {
  auto made = std::make_shared<session>(std::move(h), std::move(w), std::move(place),
                                        std::move(info), std::move(opened), t);
  made->start(std::move(upgrade));
}

void open_websocket(std::shared_ptr<hub> h, wire w, hub_place place, const std::string& host,
                    const std::string& path, connection_info info, session_opened opened,
                    std::function<void(base::error)> failed, const traffic& t) {
  auto made = std::make_shared<session>(std::move(h), std::move(w), std::move(place),
                                        std::move(info), std::move(opened), t);
  made->connect(host, path, std::move(failed));
}

}  // namespace dsec::net
