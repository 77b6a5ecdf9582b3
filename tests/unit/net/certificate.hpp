// A certificate of its own making for 127.0.0.1, as the files that a gateway reads.
#pragma once

#include <filesystem>
#include <string>

#include "base/config.hpp"
#include "support/temp_dir.hpp"

namespace dsec::net::test {

/// Writes NAME.pem and NAME.key into the directory and names them in a configuration.
base::gateway_config make_certificate(const tests::temp_dir& dir, const std::string& name);

}  // namespace dsec::net::test
