// What the worker store knows of a sandbox: who owns it, what it was asked to be, how far it came.
// Plain values and their JSON form; pure, any thread. Written before it is acted on
// (record_writer.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/lease_table.hpp"
#include "actors/on_failure.hpp"
#include "backends/backend.hpp"
#include "base/phase.hpp"
#include "base/result.hpp"

namespace dsec::actors {

/// A CreateSandbox with defaults filled in, images resolved and image configuration merged.
struct sandbox_spec {
  std::string backend;
  std::string image, workspace;  // as asked for
  std::vector<std::string> toolkits;
  std::vector<backends::layer_ref> layers;  // bottom first
  backends::limits limits;
  std::uint32_t idle_ttl_seconds = 0;  // 0 = never
  std::uint32_t absolute_ttl_seconds = 0;
  std::vector<std::string> env;  // NAME=VALUE: the image's, then the request's over it
  std::string user;              // of commands that name none
  std::string workdir;
  std::vector<std::string> entrypoint, cmd;  // the image's, for commands that ask for them
  std::string hostname;
  std::vector<std::pair<std::string, std::string>> labels;
  actors::on_failure on_failure = on_failure::none;
  std::vector<std::string> warnings;  // what was accepted but has no effect yet
  std::string trace;                  // of the create, for logs and events
};

struct sandbox_record {
  std::string id;
  std::string owner;  // principal
  base::phase phase = base::phase::requested;
  base::cause cause = base::cause::none;  // the first one wins
  std::string detail;                     // one sentence about the cause, may be empty
  sandbox_spec spec;
  std::uint64_t created_unix_ms = 0;
  std::uint64_t ended_unix_ms = 0;  // 0 while alive
  std::string key;                  // idempotency key of the create, empty = none
  std::string body_hash;            // of the create that carried it; empty: it was given up
  actors::lease lease;              // what it is bound to, of its owner; none: detached
};

/// What the backend is told of it: to start it, and to take it over later.
backends::start_spec start_spec_of(const sandbox_record& r);

/// Why nothing can run in it, for requests that need it running.
base::error why_not_running(const sandbox_record& r);

/// Nothing runs in it any more: the largest part of a record is not worth keeping for its
/// retention.
void note_end(sandbox_record& r, std::chrono::system_clock::time_point at);

using record_ptr = std::shared_ptr<const sandbox_record>;

std::string to_json(const sandbox_spec& spec);
/// errc::corrupt when the text is not what to_json() writes.
base::result<sandbox_spec> parse_spec(std::string_view json);

}  // namespace dsec::actors
