// Root actor of the worker: admits creates, owns the table of sandboxes, starts and restarts their
// actors, forgets ended ones. Runs pooled; images and memory are looked up on the copy pool. When
// it dies the root starts another over the same table: sandboxes and their actors go on, creates
// that were still waiting are answered unavailable.
//
// edge.cpp              interface, finding and listing, time limits, retention
// edge_reports.cpp      what is there and what happens: lists, events, the node itself
// edge_create.cpp       from a create request to a sandbox actor
// edge_withdraw.cpp     creates that nobody wants any more
// edge_supervision.cpp  starting actors, again when they die
#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/admission.hpp"
#include "actors/alarm.hpp"
#include "actors/create_request.hpp"
#include "actors/edge_table.hpp"
#include "actors/event_desk.hpp"
#include "actors/interfaces.hpp"
#include "actors/restart_budget.hpp"
#include "actors/waiter.hpp"
#include "actors/withdrawn_keys.hpp"
#include "actors/worker.hpp"

namespace dsec::actors {

/// To oneself: what the copy pool found out for a create.
struct images_resolved {
  std::uint64_t token = 0;
  base::result<resolved_images> images;
  std::optional<base::result<memory_reading>> memory;  // when the last reading was old
};
/// To oneself: the memory looked at again because creates wait for it.
struct memory_read {
  base::result<memory_reading> memory;
};
/// To oneself: go on ending a given-up sandbox.
struct give_up_again {
  std::string id;
};
/// To oneself: a moment after a create, top up what the backend keeps ready.
struct refill_due {};
/// To oneself: the event log has something that somebody may be waiting for.
struct events_added {};
/// To oneself: something of an earlier dsecd could not be ended; a while later, try again.
struct leftovers_stay {};
struct leftovers_due {};

using edge_self = edge_actor::extend<caf::reacts_to<images_resolved>,  //
                                     caf::reacts_to<memory_read>,      //
                                     caf::reacts_to<refill_due>,       //
                                     caf::reacts_to<leftovers_stay>,   //
                                     caf::reacts_to<leftovers_due>,    //
                                     caf::reacts_to<give_up_again>,    //
                                     caf::reacts_to<events_added>,     //
                                     caf::reacts_to<answer_made>,      //
                                     caf::reacts_to<alarm_rang>>;

struct edge_state {
  static constexpr const char* name = "edge";

  /// Creates waiting for admission, this many at most; then the answer is `capacity`.
  static constexpr std::size_t max_waiting = 32'768;
  /// Records of ended sandboxes kept at most, however long retention is; the oldest go first.
  static constexpr std::size_t max_ended = 10'000;
  static constexpr std::chrono::milliseconds memory_stale_after{100};
  static constexpr std::chrono::milliseconds memory_retry{250};
  static constexpr std::chrono::milliseconds refill_delay{20};
  static constexpr std::chrono::milliseconds leftovers_retry{2000};
  static constexpr std::chrono::milliseconds give_up_retry{1000};

  struct create_waiter {
    waiter who;
    call request;                         // without its frame
    std::optional<time_point> abandoned;  // since when its client is gone
  };
  struct pending_create {
    std::string principal;
    std::string key;
    create_request wanted;               // until the images are known
    std::optional<sandbox_spec> spec;    // then it waits for admission
    std::vector<create_waiter> waiters;  // the first, and those with the same key

    /// When it is withdrawn unless somebody asks for it again; nullopt while somebody is there.
    [[nodiscard]] std::optional<time_point> abandoned_until() const;
  };

  edge_self::pointer self;
  worker_ptr env;
  std::shared_ptr<edge_table> table;
  reaper_actor watcher;
  restart_budget reaper_restarts;
  std::unordered_map<caf::actor_id, std::string> sandbox_of;  // by the actor's id

  std::map<std::uint64_t, pending_create> creates;  // by token
  std::map<edge_table::key, std::uint64_t> waiting_keys;
  withdrawn_keys early_withdrawals;  // came before the create, which is to make nothing
  withdrawn_keys done_withdrawals;   // ended something; sent again they are not early
  admission_queue queue{max_waiting};
  std::uint64_t last_token = 0;
  std::uint32_t live = 0;
  std::uint64_t limits_bytes = 0;
  std::uint64_t settling_bytes = 0;
  std::deque<std::string> settling;  // in order of admission
  std::optional<memory_reading> memory;
  time_point memory_at;
  bool reading_memory = false;
  bool refill_armed = false;

  answer_desk desk;
  event_desk events;
  alarm deadlines;
  std::vector<caf::typed_response_promise<everything_stopped>> stoppers;

  explicit edge_state(edge_self::pointer s) : self(s) {}
  ~edge_state();

  // edge.cpp
  void begin(worker_ptr worker, std::shared_ptr<edge_table> known);
  caf::result<reply> on_call(const call& c);
  found_sandbox on_find(const find_sandbox& m);
  caf::result<everything_stopped> on_stop_everything(const stop_everything& m);
  void on_released(const sandbox_released& m);
  void on_due(const sandbox_due& m);
  void on_lease_bound(const lease_bound& m);
  void on_refill();
  void end_leftovers();
  void tell_children_to_exit();

  // edge_supervision.cpp
  void on_down(const caf::down_msg& m);
  void on_give_up_again(const give_up_again& m);

  // edge_reports.cpp
  caf::result<reply> on_list_events(const call& c, proto::ListEvents::Reader request);
  caf::result<reply> list_sandboxes(const call& c);
  caf::result<reply> list_images(const call& c);
  caf::result<reply> list_nodes(const call& c);

  // edge_create.cpp
  void on_resolved(const images_resolved& m);
  void on_memory(const memory_read& m);
  counted_load on_get_load(const get_load& m);
  void on_alarm(const alarm_rang& rang);

  // edge_withdraw.cpp
  void on_abandoned(const creates_abandoned& m);
  found_key on_find_key(const find_key& m);

 private:
  [[nodiscard]] time_point now() const { return self->clock().now(); }
  void start_reaper();
  void restart_reaper();
  void report_given_up();
  void adopt(const std::string& id, edge_entry& e);
  sandbox_actor& actor_of(edge_entry& e);
  void restart_or_give_up(const std::string& id, edge_entry& e);
  void give_up(const std::string& id, edge_entry& e);
  void end_given_up(const std::string& id, const ledger_ptr& book);
  void forget(const std::string& id);
  void free_keys_of(const std::string& id);
  void remove_files(const std::string& id);
  void keep_ended_bounded();
  void answer_stoppers();

  caf::result<reply> on_create(const call& c, proto::CreateSandbox::Reader request,
                               capnp::Text::Reader asked_key);
  std::optional<caf::result<reply>> known_key(const call& c, const edge_table::key& key,
                                              const std::string& hash);
  caf::result<reply> begin_create(const call& c, const std::string& key, create_request wanted);
  void read_memory();
  void take_reading(const base::result<memory_reading>& reading);
  [[nodiscard]] node_load load();
  [[nodiscard]] admission_policy policy() const;
  void pump();
  void publish_load();
  void admit(std::uint64_t token);
  void fail_create(std::uint64_t token, const base::error& why);
  void expire_creates();
  caf::result<reply> on_stop_with_key(const call& c, proto::SandboxRef::Reader request,
                                      capnp::Text::Reader asked_key);
  reply on_withdraw(const call& c, const edge_table::key& key);
  [[nodiscard]] base::error why_late(const pending_create& p);
};

edge_self::behavior_type edge(edge_self::stateful_pointer<edge_state> self, worker_ptr env,
                              std::shared_ptr<edge_table> table);

}  // namespace dsec::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::images_resolved)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::memory_read)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::give_up_again)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::events_added)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::refill_due)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::leftovers_stay)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::leftovers_due)
