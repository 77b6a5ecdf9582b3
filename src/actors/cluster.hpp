// Root of a coordinator's workers: knows which are there, finds the one that a sandbox's id names,
// chooses the one that a create goes to, asks all of them for lists. Keeps nothing of any sandbox:
// what it knows comes with the links and goes with them. Runs pooled, never blocks; the list of
// workers' names is written, and large lists are merged, on the copy pool. When it dies its links
// go, workers open new ones to the next.
//
// cluster.cpp         who is there; finding; what comes in
// cluster_create.cpp  creates
// cluster_keys.cpp    who knows an idempotency key; stops that name one
// cluster_list.cpp    the union of what all workers have; what happens on any of them
#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "actors/alarm.hpp"
#include "actors/cluster_interfaces.hpp"
#include "actors/edge_book.hpp"
#include "actors/health.hpp"
#include "actors/lease_table.hpp"
#include "actors/merged_replies.hpp"
#include "actors/node_metrics.hpp"
#include "actors/placement.hpp"
#include "actors/waiter.hpp"
#include "base/worker_pool.hpp"

namespace dsec::actors {

/// What the actors of a coordinator share. Everything in it is thread-safe.
struct coordinator_env {
  std::shared_ptr<base::executor> copy_pool;
  std::shared_ptr<health_board> health;
  std::shared_ptr<node_metrics> metrics;
  std::shared_ptr<lease_table> leases;
  std::vector<std::string> known_edges;  // at start
  /// Writes the names of all workers; on the copy pool.
  std::function<base::result<void>(const std::string& text)> save_edges;
  std::size_t candidates = 3;                    // workers that a key may lead to
  std::chrono::milliseconds lost_after{10'000};  // who is gone for so long is not waited for
  std::uint64_t default_limit_bytes = 0;         // memory of a sandbox that names none
  /// Creates on their way to a worker, those that wait for another of their key included.
  std::size_t max_creates = 32'768;
  /// Where many creates fit nowhere each try is more patient: a second sees no more of them.
  std::size_t tries_per_second = 10'000;
};
using coordinator_ptr = std::shared_ptr<const coordinator_env>;

/// To itself: the names of the workers are written.
struct edges_saved {};
/// To itself: what some workers have listed, as one answer.
struct lists_merged {
  std::uint64_t token = 0;
  proto::frame merged;
};

using cluster_self = cluster_actor::extend<caf::reacts_to<alarm_rang>, caf::reacts_to<lists_merged>,
                                           caf::reacts_to<edges_saved>>;

struct cluster_state {
  static constexpr const char* name = "cluster";

  /// Workers that are asked for a key beyond those that it leads to now: others with its images may
  /// have come since it led to them.
  static constexpr std::size_t spare_candidates = 2;
  /// How long requests about a sandbox wait for its worker to come back.
  static constexpr std::chrono::seconds find_patience{5};
  /// How long a create waits for any worker to be there.
  static constexpr std::chrono::seconds place_patience{10};
  /// How long a worker may keep a create that it cannot admit, while there are others to try; and
  /// again once all have been tried.
  static constexpr std::chrono::milliseconds first_try{100};
  static constexpr std::chrono::milliseconds further_try{1000};
  static constexpr std::chrono::milliseconds pause_between_rounds{250};
  /// Between two questions for events, while a client waits for some; and how many clients may: one
  /// more is answered with what there is.
  static constexpr std::chrono::milliseconds pause_between_looks{250};
  static constexpr std::size_t max_watching = 256;
  /// An answer that comes so long before the deadline leaves time for another try.
  static constexpr std::chrono::milliseconds shortest_try{300};
  /// A worker that is connected and has said nothing of itself for so long does not work.
  static constexpr std::chrono::seconds report_patience{10};
  /// Lists that workers are asked for at once; further ones wait, and beyond that are refused.
  static constexpr std::size_t lists_at_once = 2;
  static constexpr std::size_t max_lists = 1024;
  /// Workers that one list asks at once, and what of their answers is held unmerged: an answer may
  /// be as large as a message.
  static constexpr std::size_t asked_at_once = 8;
  static constexpr std::size_t unmerged_bytes = 32U << 20U;

  struct worker_node {
    std::string node_id;
    node_actor node;
    std::optional<node_report> report;
    time_point heard;        // of the last report; at first, since when it is there
    bool silent = false;     // it has not reported in time; one more look and it is cut off
    std::uint64_t sent = 0;  // creates
  };
  struct finding {
    caf::typed_response_promise<found_sandbox> promise;
    find_sandbox what;
    time_point until;
  };
  struct create_waiter {
    waiter who;
    call request;
  };
  /// What placement has to know of a create.
  struct wanted {
    std::string key;
    std::vector<std::string> images;  // "base NAME:TAG"
    std::uint64_t limit_bytes = 0;
  };
  /// One create on its way to a worker, and those with the same key that came meanwhile.
  struct creation {
    enum class step : std::uint8_t { ask, asking, place, placed };

    creation(create_waiter f, wanted w) : first(std::move(f)), what(std::move(w)) {}

    create_waiter first;
    wanted what;
    std::vector<create_waiter> followers;
    step at = step::ask;
    time_point patient_until;     // while no worker is there
    time_point not_before;        // the next round
    time_point look_at;           // stands in `due`, until it is asked for or placed
    std::set<std::string> tried;  // in this round
    unsigned rounds = 0;
    std::map<std::string, std::string> lacking;  // who does not have the images, in its words
    std::string lacked;                          // the image
    std::optional<proto::frame> refusal;         // the last one
    bool gone = false;                           // its connection is
  };
  /// A list of what all workers have.
  struct gathering {
    gathering(waiter w, call c, proto::Request::Body::Which k)
        : who(std::move(w)), request(std::move(c)), kind(k) {}

    waiter who;
    call request;
    proto::Request::Body::Which kind;  // of list
    events_wanted events;              // of events
    time_point wait_until;             // likewise: for any to happen
    time_point not_before;             // the next question
    time_point until;                  // workers are waited for
    bool begun = false;
    std::vector<std::string> to_ask;
    std::size_t asked = 0;  // who have not answered yet, and merges under way
    bool lost_one = false;  // a link went meanwhile
    std::vector<edge_answer> answers;
    std::size_t bytes = 0;            // of the answers
    std::vector<std::string> silent;  // who did not answer
    bool ending = false;              // the last merge is under way
  };
  struct key_answers {
    std::map<std::string, key_state> said;  // by worker
    bool complete = true;                   // else one of them went meanwhile
  };
  using key_of_create = std::pair<std::string, std::string>;  // principal and key

  cluster_self::pointer self;
  coordinator_ptr env;
  std::optional<edge_book> book;
  std::map<std::string, worker_node> nodes;  // that are there, by edge
  /// What each has, or had when it was last there. Of who is not named nothing is known.
  std::map<std::string, std::set<std::string>> images;
  std::vector<finding> findings;  // that wait for a worker
  std::map<std::uint64_t, creation> creations;
  std::size_t creates = 0;                             // in all of them
  std::set<std::pair<time_point, std::uint64_t>> due;  // when to look again at which
  std::map<key_of_create, std::uint64_t> keys_under_way;
  std::map<std::uint64_t, gathering> gatherings;  // in the order in which they came
  std::uint64_t last_token = 0;
  bool saving = false;   // the names of the workers
  bool unsaved = false;  // they have changed since
  alarm deadlines;

  explicit cluster_state(cluster_self::pointer s) : self(s) {}
  ~cluster_state();

  // cluster.cpp
  void begin(coordinator_ptr e);
  caf::result<reply> on_call(const call& c);
  caf::result<found_sandbox> on_find(const find_sandbox& m);
  node_welcome on_joins(const node_joins& m);
  void on_reported(const node_reported& m);
  void on_lease(const lease_changed& m);
  void on_down(const caf::down_msg& m);
  void on_abandoned(const creates_abandoned& m);
  void on_alarm(const alarm_rang& rang);
  void on_saved();
  void on_listed(std::uint64_t token, const std::string& edge, const proto::frame* answer);

 private:
  [[nodiscard]] time_point now() const { return self->clock().now(); }
  void remember();
  [[nodiscard]] bool is_lost(const std::string& edge) const;
  [[nodiscard]] std::optional<found_sandbox> found_now(const find_sandbox& m) const;
  void go_on_finding();
  void say_who_is_there();
  void cut_silent();

  // cluster_create.cpp
  caf::result<reply> on_create(const call& c, proto::Request::Reader request);
  void begin_creation(create_waiter first, wanted what);
  void advance(std::uint64_t token);
  void ask_for_key(std::uint64_t token, creation& c);
  void on_key_found(std::uint64_t token, const key_answers& heard);
  void place(std::uint64_t token, creation& c);
  void begin_round(std::uint64_t token, creation& c);
  void send_to(std::uint64_t token, creation& c, const std::string& edge,
               std::optional<std::chrono::milliseconds> admit);
  void on_created(std::uint64_t token, const std::string& edge, const proto::frame& answer);
  void on_create_lost(std::uint64_t token);
  [[nodiscard]] std::vector<std::string> order_for(const creation& c) const;
  [[nodiscard]] std::chrono::milliseconds patience_of_try(const creation& c) const;
  creation end_creation(std::uint64_t token);
  void finish(std::uint64_t token, const proto::frame& answer, const std::string& edge);
  void fail(std::uint64_t token, const base::error& why, std::string_view object = {});
  /// No later than its deadline.
  void look_again(std::uint64_t token, creation& c, time_point at);
  void go_on_creating();
  void look_at_all();
  void drop_abandoned(const creates_abandoned& m);

  // cluster_keys.cpp
  caf::result<reply> on_stop_with_key(const call& c, proto::Request::Reader request);
  caf::result<reply> withdraw(const call& c, const key_of_create& key);
  void withdraw_everywhere(const std::shared_ptr<waiter>& who, const call& c,
                           const std::vector<std::string>& edges);
  /// Those that are there, and those that are gone and may come back.
  [[nodiscard]] std::vector<std::string> not_lost() const;
  /// Of these, who may have made something of these images with the key.
  [[nodiscard]] std::vector<std::string> askable(const key_of_create& key,
                                                 const std::vector<std::string>& wanted) const;
  [[nodiscard]] std::vector<std::string> first_of(const key_of_create& key,
                                                  std::vector<std::string> names) const;
  [[nodiscard]] bool has_images(const std::string& edge,
                                const std::vector<std::string>& wanted) const;
  /// Asks those that are there.
  void ask_key(const key_of_create& key, const std::vector<std::string>& edges,
               std::function<void(const key_answers&)> done);
  [[nodiscard]] std::string first_gone(const std::vector<std::string>& edges) const;

  // cluster_list.cpp
  caf::result<reply> gather(const call& c, proto::Request::Body::Which kind);
  caf::result<reply> gather_events(const call& c, proto::ListEvents::Reader request);
  caf::result<reply> begin_gathering(gathering g);
  [[nodiscard]] bool is_worth_waiting(const gathering& g) const;
  void go_on_listing();
  [[nodiscard]] bool waits(const gathering& g);
  void begin_asking(gathering& g);
  void ask_some(std::uint64_t token);
  void merge(std::uint64_t token, gathering& g);
  void refuse_list(std::uint64_t token, const base::error& why);
};

cluster_self::behavior_type cluster(cluster_self::stateful_pointer<cluster_state> self,
                                    coordinator_ptr env);

}  // namespace dsec::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::edges_saved)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::lists_merged)
