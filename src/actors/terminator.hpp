// Ordered shutdown: all sandboxes end (or are left to the next dsecd), then all connections are
// answered and closed. Whoever asked then ends the root and the actor system. How long that may
// take is the asker's business: node::stop() has a watchdog thread that ends the process when the
// grace period is over.
#pragma once

#include <caf/typed_event_based_actor.hpp>

#include "actors/interfaces.hpp"

namespace dsec::actors {

struct terminator_state {
  static constexpr const char* name = "terminator";

  terminator_actor::pointer self;
  root_actor root;
  caf::typed_response_promise<shut_down_done> done;

  explicit terminator_state(terminator_actor::pointer s) : self(s) {}
  caf::result<shut_down_done> on_shut_down(shut_down how);

 private:
  void stop_sandboxes(const roots& r, shut_down how);
  void close_connections(const gateway_actor& gateway);
  void finish();
};

terminator_actor::behavior_type terminator(
    terminator_actor::stateful_pointer<terminator_state> self, root_actor root);

}  // namespace dsec::actors
