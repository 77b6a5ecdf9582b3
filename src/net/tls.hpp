// Certificate files to TLS contexts: the door's, and that of a worker's links. A connection keeps
// the context that it began with. Blocking file reads; whatever is wrong names key and file. A
// certificate out of its time is taken, with a warning in the log: the other side will say so, and
// who is inside goes on. Internal to src/net.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <filesystem>
#include <memory>

#include "base/config.hpp"
#include "base/result.hpp"

namespace dsec::net {

/// Empty without gateway.tls_cert. With `peer_ca` whoever connects is asked for a certificate and
/// may have none, or a bad one: wire::distrust() says so where it matters.
base::result<std::shared_ptr<boost::asio::ssl::context>> load_tls(
    const base::gateway_config& config, const std::filesystem::path& peer_ca = {});

/// Of links to coordinators; empty without peer.ca_file. Who does not prove to be one of its
/// authorities' is not spoken to.
base::result<std::shared_ptr<boost::asio::ssl::context>> load_link_tls(const base::config& config);

}  // namespace dsec::net
