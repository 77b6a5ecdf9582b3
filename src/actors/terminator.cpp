#include "actors/terminator.hpp"

#include <utility>

#include "actors/runtime.hpp"
#include "base/log.hpp"

namespace dsec::actors {

// Every step goes on when its addressee fails: a shutdown that stops half-way helps nobody.

caf::result<shut_down_done> terminator_state::on_shut_down(shut_down how) {
  base::log::info(how.leave ? "leaving" : "stopping");
  done = self->make_response_promise<shut_down_done>();
  self->request(root, caf::infinite, get_roots{})
      .then([this, how](const roots& r) { stop_sandboxes(r, how); },
            [this](caf::error&) { finish(); });
  return done;
}

void terminator_state::stop_sandboxes(const roots& r, shut_down how) {
  const auto next = [this, gateway = r.gateway] { close_connections(gateway); };
  if (!r.edge) return next();  // a coordinator
  self->request(r.edge, caf::infinite, stop_everything{how.leave})
      .then([next](everything_stopped) { next(); },
            [next](caf::error&) {
              base::log::error("sandboxes_not_stopped", {{"why", "the edge died meanwhile"}});
              next();
            });
}

void terminator_state::close_connections(const gateway_actor& gateway) {
  self->request(gateway, caf::infinite, close_everything{})
      .then([this](everything_closed) { finish(); }, [this](caf::error&) { finish(); });
}

void terminator_state::finish() {
  done.deliver(shut_down_done{});
}

terminator_actor::behavior_type terminator(
    terminator_actor::stateful_pointer<terminator_state> self, root_actor root) {
  install_handlers(self);
  self->state.root = std::move(root);
  return {[self](const shut_down& how) { return self->state.on_shut_down(how); }};
}

}  // namespace dsec::actors
