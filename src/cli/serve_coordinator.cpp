// dsecd --role=coordinator: a node without sandboxes, to which workers come. Needs no root: nothing
// of it is on the host but its state directory.
#include "actors/edge_book.hpp"
#include "actors/system.hpp"
#include "auth/gate.hpp"
#include "auth/key_watch.hpp"
#include "base/log.hpp"
#include "cli/notify.hpp"
#include "cli/peer.hpp"
#include "cli/serve.hpp"
#include "cli/state_dir.hpp"
#include "fs/files.hpp"
#include "net/door_url.hpp"

namespace dsec::cli {

base::result<void> serve_coordinator(const base::config& c, reloader::reader read) {
  DSEC_CHECK(check_coordinator(c));
  const auto signals = block_signals();
  const base::paths where(c.state);
  DSEC_TRY(const auto lock, state_lock::acquire(where, c.node.instance, lock_use::serve));
  DSEC_TRY(const auto key, load_or_make_api_key(where));
  const auto gate = std::make_shared<auth::gate>();
  DSEC_TRY(const auto keys, auth::key_watch::open(where, auth::local_key(key), gate));
  DSEC_TRY(auto secret, load_peer_secret(c, true));
  DSEC_TRY(auto known, actors::load_edges(where.edges()));
  const auto save = [file = where.edges()](const std::string& text) {
    return fs::write_file_power(file, file.string() + ".tmp", text);
  };
  // It is also what `purge` knows the state directory of a coordinator by.
  if (known.empty()) DSEC_CHECK(save(""));
  DSEC_TRY(const auto node, actors::start_coordinator(c, {.gate = gate,
                                                          .secret = std::move(secret),
                                                          .known_edges = std::move(known),
                                                          .save_edges = save,
                                                          .give_up = nullptr}));
  const auto url = net::door_url(c.gateway, node->port());
  DSEC_CHECK(lock.publish_url(url));
  keys->start([&node](const auto& ids) { node->keys_revoked(ids); });
  reloader reload(c, std::move(read), *node, *keys);
  base::log::info("serving", {{"url", url}, {"state", c.state.string()}, {"role", "coordinator"}});
  notify_manager("READY=1");
  int signal = 0;
  while (signal == 0) signal = reload.next_stop(signals);
  keys->stop();
  base::log::info("stopping", {{"signal", signal}});
  notify_manager("STOPPING=1");
  node->stop(stop_grace);
  return {};
}

}  // namespace dsec::cli
