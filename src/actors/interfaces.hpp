// Every actor's interface, a comment per message. Messages are plain structs that name what they
// mean; what a client says and hears travels as Cap'n Proto frames (msg<Root>), never re-encoded
// between connection and sandbox.
//
// Nothing here is ever serialised: CAF's network protocol is not used, so all types are declared
// "unsafe" to CAF instead of getting type ids. An actor's own messages to itself (alarms, results
// of pool jobs) stand beside its implementation; what other actors may send stands here.
#pragma once

#include <algorithm>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/arrival.hpp"
#include "actors/edge_load.hpp"
#include "actors/lease_table.hpp"
#include "actors/ledger.hpp"
#include "base/phase.hpp"
#include "base/result.hpp"
#include "proto/client.capnp.h"
#include "proto/frame.hpp"

namespace dsec::actors {

using time_point = std::chrono::steady_clock::time_point;

/// A frame whose root is Root.
template <class Root>
class msg {
 public:
  explicit msg(proto::frame f) : frame_(std::move(f)) {}

  [[nodiscard]] const proto::frame& frame() const { return frame_; }
  /// See proto::view::read.
  template <class F>
  auto read(F&& fn) const {
    return proto::view<Root>(frame_).read(std::forward<F>(fn));
  }

 private:
  proto::frame frame_;
};

using reply = msg<proto::Reply>;

/// Who asks; one per connection.
struct caller {
  std::string principal;
  std::string peer;
  actors::lease lease{};  // that the client named
};

/// A client's request on its way. Whoever owns what it is about answers it before `deadline`; the
/// connection answers in its place a little later if nobody did.
struct call {
  std::shared_ptr<const caller> from;
  std::uint64_t id = 0;  // of the request, copied out of the frame
  time_point deadline;
  msg<proto::Request> request;
  std::string trace;         // the client's, or made here: stands in log lines about it
  std::uint64_t serial = 0;  // of the request on its connection, where ids come again
  std::size_t promised = 0;  // bytes that its reply may have; 0 = never many
  /// A create that has not been admitted by then is refused, for another worker to try; none: as
  /// long as its deadline allows.
  std::optional<time_point> admit_by{};
  std::shared_ptr<const actors::arrival> arrival{};  // of a create that came over a link

  /// What is left when the request has been parsed. Its bytes count against what its connection
  /// may send until nobody holds them any more.
  [[nodiscard]] call without_frame() const {
    auto c = *this;
    c.request = msg<proto::Request>(proto::frame());
    return c;
  }
};

/// Answers requests about one sandbox: its actor, or, where the sandbox is on another machine, the
/// actor that stands for its worker here.
using callee = caf::typed_actor<caf::replies_to<call>::with<reply>>;

// ---- sandbox: one per sandbox of this worker
// ------------------------------------------------------------------

/// The create that made this sandbox (or one with the same key): answered once it runs, or has
/// failed.
struct await_running {
  call request;
  std::optional<time_point> abandoned;  // since when its client is gone
};
/// A connection is gone, and with it the answers to these creates. Their client may come back and
/// send them again; what nobody has asked for again after abandon_grace, or used, is withdrawn.
struct creates_abandoned {
  std::shared_ptr<const caller> from;
  std::vector<std::uint64_t> serials;  // of the requests

  [[nodiscard]] bool names(const std::shared_ptr<const caller>& who, std::uint64_t serial) const {
    return who == from && std::find(serials.begin(), serials.end(), serial) != serials.end();
  }
};
inline constexpr std::chrono::seconds abandon_grace{5};
/// Ends the sandbox, in whatever phase; the first cause wins.
struct end_sandbox {
  base::cause why = base::cause::none;
  std::string detail;
  bool withdrawn = false;  // its key is free
};
inline constexpr auto withdrawn_by_client = "withdrawn by its client";
/// Idle time-out: ends the sandbox unless it was used since the reaper looked.
struct end_if_idle {};
/// Its lease has ended: ends the sandbox unless its client came back, or it was detached, since the
/// reaper looked.
struct end_if_unleased {};
/// Retention is over: drops spools and everything else, then ends the actor.
struct forget_sandbox {};

struct sandbox_released;
struct lease_bound;
/// Where a sandbox reports to: its edge.
using sandbox_parent =
    caf::typed_actor<caf::reacts_to<sandbox_released>, caf::reacts_to<lease_bound>>;
/// From a new edge to the sandboxes it took over.
struct new_parent {
  sandbox_parent edge;
};

using sandbox_actor = caf::typed_actor<caf::replies_to<call>::with<reply>,           //
                                       caf::replies_to<await_running>::with<reply>,  //
                                       caf::reacts_to<end_sandbox>,                  //
                                       caf::reacts_to<end_if_idle>,                  //
                                       caf::reacts_to<end_if_unleased>,              //
                                       caf::reacts_to<creates_abandoned>,            //
                                       caf::reacts_to<new_parent>,                   //
                                       caf::reacts_to<forget_sandbox>>;

/// To the edge: the sandbox has ended and nothing of it is left on the host.
struct sandbox_released {
  std::string id;
  bool keeps_key = false;  // or a create with its key makes a new one
};
/// To the edge: the sandbox has another lease now.
struct lease_bound {
  std::string id;
};

// ---- reaper: time limits of sandboxes, one per edge
// -----------------------------------------------------------

/// A sandbox with time limits came to be.
struct watch_sandbox {
  std::string id;
  ledger_ptr book;
  time_point created;
};
/// A sandbox is bound to the lease that its record names.
struct watch_lease {
  std::string id;
  ledger_ptr book;
};
/// A sandbox ended; its record is kept for `retention` from now.
struct retain_sandbox {
  std::string id;
  std::chrono::milliseconds retention{0};
};

using reaper_actor = caf::typed_actor<caf::reacts_to<watch_sandbox>,  //
                                      caf::reacts_to<watch_lease>,    //
                                      caf::reacts_to<retain_sandbox>>;

/// From the reaper to its edge: what is due for a sandbox.
struct sandbox_due {
  enum class what : std::uint8_t { absolute_ttl, idle_ttl, lease, retention };
  std::string id;
  what due = what::absolute_ttl;
};
using reaper_parent = caf::typed_actor<caf::reacts_to<sandbox_due>>;

// ---- edge: root of the worker side
// ----------------------------------------------------------------------------

/// Which actor answers for a sandbox. Sandboxes of other principals do not exist (not_found).
struct find_sandbox {
  std::shared_ptr<const caller> from;
  std::string id;
};
struct found_sandbox {
  callee who;
  base::error why;  // when `who` is empty
};
/// What is known here of an idempotency key.
struct find_key {
  std::string principal;
  std::string key;
};
enum class key_state : std::uint8_t {
  unknown,
  used,       // a sandbox was made with it, or a create with it waits
  withdrawn,  // before its create had arrived: that one is to make nothing
};
struct found_key {
  key_state state = key_state::unknown;
};
/// How much there is to do; answered without what has to be read (edge_load.hpp).
struct get_load {
  std::shared_ptr<const arrivals> creates;  // of the link that asks
};
struct counted_load {
  edge_load load;
  std::uint64_t creates = 0;  // that are counted in it, or are over
};
/// Refuses new sandboxes and ends all there are, or leaves them as they are; answered when that is
/// done.
struct stop_everything {
  bool leave = false;
};
struct everything_stopped {};

/// What a gateway hands requests to: the edge of its process, or on a coordinator the cluster.
using front_actor = caf::typed_actor<caf::replies_to<call>::with<reply>,  // create, list sandboxes,
                                                                          // list images, ping
                                     caf::replies_to<find_sandbox>::with<found_sandbox>,  //
                                     caf::reacts_to<creates_abandoned>>;

using edge_actor = caf::typed_actor<caf::replies_to<call>::with<reply>,                          //
                                    caf::replies_to<find_sandbox>::with<found_sandbox>,          //
                                    caf::replies_to<find_key>::with<found_key>,                  //
                                    caf::replies_to<get_load>::with<counted_load>,               //
                                    caf::replies_to<stop_everything>::with<everything_stopped>,  //
                                    caf::reacts_to<creates_abandoned>,                           //
                                    caf::reacts_to<sandbox_released>,                            //
                                    caf::reacts_to<lease_bound>,                                 //
                                    caf::reacts_to<sandbox_due>>;

// ---- gateway: root of the coordinator side; routes by the edge in a sandbox's id
// ------------------------------

/// Whom the gateway hands requests to was started, or started again.
struct front_is {
  front_actor front;
};
struct close_everything {};
struct everything_closed {};

/// What a coordinator has made of a request before it passed it on: stands in place of what the
/// request says itself.
struct relayed {
  std::uint64_t id = 0;
  std::chrono::milliseconds left{0};               // to its deadline
  std::optional<std::chrono::milliseconds> admit;  // see call::admit_by
  std::string trace;
  std::shared_ptr<const actors::arrival> arrival{};  // see call::arrival
};
/// One client connection; its socket side sends what came in.
struct frame_arrived {
  proto::frame frame;
  std::optional<relayed> as{};
};
struct frame_malformed {
  base::error why;
};
/// The client has taken enough of its replies for what waits for room.
struct room_made {};
struct connection_lost {};
/// Answers what is in flight with `code`, then closes.
struct close_connection {
  std::string reason;
  base::errc code = base::errc::unavailable;  // unauthenticated: its API key is good no longer
};
using ws_conn_actor = caf::typed_actor<caf::reacts_to<frame_arrived>,    //
                                       caf::reacts_to<frame_malformed>,  //
                                       caf::reacts_to<room_made>,        //
                                       caf::reacts_to<connection_lost>,  //
                                       caf::reacts_to<close_connection>>;

struct connection_opened {
  ws_conn_actor connection;
  std::string key_id;  // that it came in with
};
/// These API keys are good no longer: closes what came in with them.
struct keys_revoked {
  std::vector<std::string> ids;
};

using gateway_actor =
    caf::typed_actor<caf::replies_to<call>::with<reply>,                          // as front_actor
                     caf::replies_to<find_sandbox>::with<found_sandbox>,          // as front_actor
                     caf::replies_to<close_everything>::with<everything_closed>,  //
                     caf::reacts_to<creates_abandoned>,                           // as front_actor
                     caf::reacts_to<front_is>,                                    //
                     caf::reacts_to<connection_opened>,                           //
                     caf::reacts_to<keys_revoked>>;

// ---- root
// ------------------------------------------------------------------------------------------------------

struct get_roots {};
struct roots {
  edge_actor edge;  // none on a coordinator
  gateway_actor gateway;
};
using root_actor = caf::typed_actor<caf::replies_to<get_roots>::with<roots>>;

/// Ordered shutdown: sandboxes, connections, actors. Answered when only the root is left to be told
/// to exit.
struct shut_down {
  bool leave = false;  // sandboxes run on, for the next dsecd
};
struct shut_down_done {};
using terminator_actor = caf::typed_actor<caf::replies_to<shut_down>::with<shut_down_done>>;

/// To oneself: an alarm rang (alarm.hpp).
struct alarm_rang {
  std::uint64_t generation = 0;
};

}  // namespace dsec::actors

namespace caf {

template <class Root>
struct allowed_unsafe_message_type<dsec::actors::msg<Root>> : std::true_type {};

}  // namespace caf

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::call)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::await_running)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::end_sandbox)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::end_if_idle)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::end_if_unleased)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::creates_abandoned)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::forget_sandbox)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::new_parent)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::sandbox_released)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::lease_bound)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::watch_sandbox)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::watch_lease)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::retain_sandbox)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::sandbox_due)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::find_sandbox)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::found_sandbox)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::stop_everything)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::everything_stopped)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::find_key)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::found_key)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::get_load)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::counted_load)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::front_is)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::close_everything)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::everything_closed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::frame_arrived)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::frame_malformed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::room_made)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::connection_lost)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::close_connection)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::connection_opened)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::keys_revoked)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::get_roots)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::roots)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::shut_down)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::shut_down_done)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::alarm_rang)
