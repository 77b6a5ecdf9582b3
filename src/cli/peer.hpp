// What a link between worker and coordinator needs of the state directory and the configuration:
// the shared secret, the worker's identity, the coordinators' addresses. Blocking; main thread.
#pragma once

#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"
#include "net/peer_connector.hpp"

namespace dsec::cli {

/// The secret in peer.secret_file, which nobody else may be able to read. A coordinator makes one
/// (256 random bits, 0600) when there is none.
base::result<std::string> load_peer_secret(const base::config& c, bool make);

/// What tells this state directory from that of another worker; made when there is none.
base::result<std::string> load_or_make_node_id(const base::paths& paths);

/// peer.coordinators, checked.
base::result<std::vector<net::peer_address>> coordinators_of(const base::config& c);

/// Whether workers can come to this coordinator at all.
base::result<void> check_coordinator(const base::config& c);

}  // namespace dsec::cli
