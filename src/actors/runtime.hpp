// How CAF is set up for dsecd, and the handlers every long-lived actor has.
#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/scheduled_actor.hpp>
#include <functional>

#include "actors/interfaces.hpp"

namespace dsec::actors {

/// CAF's settings. Never parses files or arguments: unlike CAF's own default, nothing is read from
/// the working directory and no unknown key is accepted silently.
class runtime_config : public caf::actor_system_config {
 public:
  runtime_config();
};

struct handlers {
  /// Who watched actor died; without one deaths are only logged.
  std::function<void(const caf::down_msg&)> down;
  /// Ordered exit: tell the children, before this actor ends too.
  std::function<void()> exit;
};

/// Error, down, exit, exception and default handlers. Without them CAF's own would end the actor on
/// the first error message, or print to the terminal. An exception in a handler ends the actor with
/// an error (its supervisor sees a crash); exit_reason::kill cannot be handled and is how tests
/// crash an actor.
void install_handlers(caf::scheduled_actor* self, handlers h = {});

/// Whether an actor died of something else than an ordered exit.
bool is_crash(const caf::error& reason);

}  // namespace dsec::actors
