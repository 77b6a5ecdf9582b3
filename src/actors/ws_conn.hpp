// One client connection: reads the head of each request, sends it to whoever can answer, and hands
// the answer to the socket side unchanged. Requests about a sandbox go straight to its actor once
// the gateway has named it. At most proto::max_in_flight requests are read before one is answered
// (the session reads a frame per credit). Requests whose replies may be large wait here while what
// is queued and promised is more than proto::max_promised_bytes (large_requests.hpp); a client that
// reads slowly or asks for much at once is thus slowed down and nothing else. Output that a request
// waits for is promised to nobody: when it comes and there is no room for it, the answer is that
// there is nothing yet, and the client asks again. Every request is answered: by its addressee, or
// here with deadline_exceeded when its deadline passes. When the client goes, answers still due are
// dropped and what was started goes on; only creates that were not answered are told to the edge,
// which withdraws them in a while. The lease that the client named in hello is held for as long as
// this actor lives.
//
// ws_conn.cpp          requests and answers
// ws_conn_hello.cpp    who the client is
// ws_conn_streams.cpp  what it has open to be sent unasked
#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "actors/alarm.hpp"
#include "actors/interfaces.hpp"
#include "actors/large_requests.hpp"
#include "actors/lease_table.hpp"
#include "actors/node_metrics.hpp"
#include "actors/stream_table.hpp"
#include "net/listener.hpp"

namespace dsec::actors {

/// To oneself: a piece of a stream has gone to the socket, or will not any more.
struct piece_written {
  std::uint64_t stream_id = 0;
  std::uint64_t serial = 0;  // of the stream
};

using ws_conn_self =
    ws_conn_actor::extend<caf::reacts_to<alarm_rang>, caf::reacts_to<piece_written>>;

/// What all connections of a node have in common.
struct connection_setup {
  gateway_actor gateway;
  std::string edge_name;
  std::shared_ptr<lease_table> leases;
  std::chrono::milliseconds default_deadline{0};
  std::chrono::milliseconds default_lease{0};
  std::shared_ptr<node_metrics> metrics;
};

struct ws_conn_args {
  std::shared_ptr<net::ws_session> session;
  std::shared_ptr<const caller> from;  // with its lease, once it has said hello
  connection_setup node;
  bool greeted = false;  // it has said hello: to a coordinator, whose link this connection is on
};

struct ws_conn_state {
  static constexpr const char* name = "ws_conn";

  /// Sandboxes whose actor is remembered; beyond that all are forgotten and looked up again.
  static constexpr std::size_t max_known = 4096;

  /// Bytes of a client's trace id and name that are logged.
  static constexpr std::size_t longest_trace = 128;

  struct pending {
    std::uint64_t serial = 0;  // a client may use an id again once it is answered
    time_point deadline;       // of the client: when it is answered from here
    std::string sandbox_id;    // empty: not about one sandbox
    call request;
    bool asked_again = false;
    std::size_t promised = 0;  // bytes its reply may have; 0 = never many
    proto::Request::Body::Which which = proto::Request::Body::UNSET;
    time_point began;
  };

  ws_conn_self::pointer self;
  ws_conn_args args;
  bool greeted = false;
  bool may_stream = false;  // the client said that it knows streams
  bool closing = false;
  std::unordered_map<std::uint64_t, pending> in_flight;  // by request id
  std::unordered_map<std::string, callee> known;
  large_requests large;
  std::uint64_t last_serial = 0;
  std::string own_traces;  // how the trace ids begin that are made here
  stream_table streams;
  lease_table::holder presence;  // holds the client's lease, however this actor ends
  alarm deadlines;

  explicit ws_conn_state(ws_conn_self::pointer s) : self(s) {}
  ~ws_conn_state();

  void on_frame(const frame_arrived& m);
  void on_malformed(const frame_malformed& m);
  void on_room();
  void on_lost();
  void on_close(const close_connection& m);
  void on_alarm(const alarm_rang& rang);
  void on_written(const piece_written& m);

 private:
  void greet(std::uint64_t id, proto::Request::Reader request);
  [[nodiscard]] base::result<lease> lease_of(proto::Hello::Reader hello) const;
  void accept(std::uint64_t id, proto::Request::Reader request, const frame_arrived& m);
  [[nodiscard]] std::chrono::milliseconds time_for(proto::Request::Reader request,
                                                   const frame_arrived& m) const;
  void hold_or_route(pending& p);
  void let_go_held();
  std::string own_trace(std::uint64_t serial);
  std::string trace_of(proto::Request::Reader request, std::uint64_t serial);
  bool room_for(std::size_t bytes, std::size_t most = proto::max_promised_bytes);
  bool room_for_unpromised(const pending& p, std::size_t bytes);
  void route(pending& p);
  void ask_gateway(pending& p);
  void find(const pending& p);
  void ask_sandbox(pending& p, const callee& who);
  static void let_go_of_frame(pending& p);
  /// The request `id` if it still waits for the answer to `serial`.
  pending* waiting(std::uint64_t id, std::uint64_t serial);
  void finish(std::uint64_t id, std::uint64_t serial, const proto::frame& answer);
  void fail(std::uint64_t id, std::uint64_t serial, const base::error& why);
  void note_answer(const pending& p, const proto::frame& answer) const;
  void abandon_creates();
  void on_sandbox_down(std::uint64_t id, std::uint64_t serial);
  void write(proto::frame f);
  /// The answer to a request: the next one may come.
  void send(const proto::frame& f);
  void hang_up(const std::string& reason);

  // ws_conn_streams.cpp
  /// Answers it if it is one about streams.
  bool answer_about_stream(std::uint64_t id, proto::Request::Body::Reader body);
  void answer_about(std::uint64_t id, const base::result<stream*>& s);
  void go_on(stream& s);
  void ask_for_piece(stream& s, const callee& who);
  void find_source(stream& s);
  void on_piece(std::uint64_t id, std::uint64_t serial, const proto::frame& reply);
  void on_source_down(std::uint64_t id, std::uint64_t serial);
  void send_piece(stream& s, const proto::frame& f);
  void fail_stream(const stream& s, const base::error& why);
  void fail_streams(const base::error& why);
};

ws_conn_self::behavior_type ws_conn(ws_conn_self::stateful_pointer<ws_conn_state> self,
                                    ws_conn_args args);

}  // namespace dsec::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::ws_conn_args)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::piece_written)
