// CreateSandbox -> what will be built. Checks everything the client chose, fills in defaults, then
// merges the images' configuration. Pure, any thread; what is wrong is errc::invalid_argument
// naming field and remedy.
#pragma once

#include <string>

#include "actors/images.hpp"
#include "actors/record.hpp"
#include "base/config.hpp"
#include "base/result.hpp"
#include "proto/client.capnp.h"

namespace dsec::actors {

struct create_request {
  image_refs images;
  sandbox_spec spec;  // still without layers; env, user and workdir only as far as the request says
  bool detached = false;  // bound to no lease
  std::string body_hash;  // SHA-256 of the request's canonical form
};

/// `backend` is the name of the one this worker has.
base::result<create_request> parse_create(proto::CreateSandbox::Reader request,
                                          const base::sandbox_config& defaults,
                                          const std::string& backend);

/// The spec with layers, and with env, user and workdir over what the images say.
sandbox_spec complete(create_request request, const resolved_images& images);

}  // namespace dsec::actors
