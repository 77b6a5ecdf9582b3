// The gateway's certificate: files to a TLS context. A connection keeps the context that it began
// with. Blocking file reads; whatever is wrong names the file. Internal to src/net.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "base/config.hpp"
#include "base/result.hpp"

namespace dsec::net {

/// Empty without gateway.tls_cert. A certificate out of its time is taken, with a warning in the
/// log: clients will say so, and those inside go on.
base::result<std::shared_ptr<boost::asio::ssl::context>> load_tls(
    const base::gateway_config& config);

}  // namespace dsec::net
