// Typed configuration of dsecd: TOML file -> one struct per component, every key with default, unit
// and range. Command line > environment > file > default. Unknown keys are errors that name the
// nearest known one. Pure; any thread. The shipped config/*.toml are parsed by a test.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace dsec::base {

struct gateway_config {
  std::string bind = "127.0.0.1";               // address the gateway listens on
  std::uint16_t port = 7070;                    // 0 = any free one (written to <state>/url)
  std::uint32_t max_connections = 10'000;       // further ones are answered 503
  std::uint32_t default_deadline_ms = 120'000;  // for requests that name none
  std::uint32_t lease_seconds = 120;            // leases that name no time end so long after their
                                                // last connection, and their sandboxes with them
  std::filesystem::path tls_cert;               // PEM, with its chain; empty: no TLS
  std::filesystem::path tls_key;                // PEM, of that certificate
  std::string tls_min_version = "1.2";          // "1.2" or "1.3"
  bool allow_plaintext = false;                 // also where others could listen in
};

struct node_config {
  std::string name = "e0";  // this edge; becomes the first part of sandbox ids
  std::string instance =
      "dsec";  // names cgroups and everything else this instance owns on the host
  std::uint32_t uid_base = 1'000'000'000;       // first host uid of slot 0's range of 65536
  std::uint32_t aether_uid_base = 900'000'000;  // host uid of slot 0's aether
  std::uint32_t max_sandboxes = 4096;           // slots
  std::uint32_t slot_pool = 8;                  // slots kept ready
  std::uint32_t memory_reserve_mb = 1024;       // MiB never given to sandboxes
  double memory_overcommit = 4.0;               // sum of limits / memory, at most
  std::uint32_t retention_seconds = 3600;  // records and spools of ended sandboxes are kept so long
};

struct sandbox_config {
  std::uint32_t cpu_millis = 1000;  // defaults for sandboxes that name none
  std::uint32_t memory_mb = 512;
  std::uint32_t pids = 4096;
  std::uint32_t nofile = 65'536;
  std::uint32_t spool_mb = 64;  // output kept per command and stream, MiB
};

struct import_config {                    // of images made of layers (oci:, docker:)
  std::uint32_t max_mb = 32'768;          // MiB of the unpacked files of an image
  std::uint32_t max_entries = 2'000'000;  // of its tars
  std::uint32_t max_ratio = 200;          // unpacked to packed, of one layer
};

struct coordinator_config {
  std::uint32_t candidates = 3;   // workers that an idempotency key may lead to
  std::uint32_t lost_after = 10;  // s, a worker that is gone for so long is not waited for
};

struct peer_config {                        // files are relative to state
  std::vector<std::string> coordinators;    // of a worker: ADDRESS:PORT each
  std::string secret_file = "peer-secret";  // that both sides must know
  std::filesystem::path ca_file;            // PEM, who signs the other side's certificate
  std::filesystem::path cert_file;          // of a worker: PEM, with its chain
  std::filesystem::path key_file;           // PEM, of that certificate
};

struct config {
  std::filesystem::path state = "/var/lib/dsec";
  std::string log_level = "info";
  gateway_config gateway;
  node_config node;
  sandbox_config sandbox;
  import_config import;
  coordinator_config coordinator;
  peer_config peer;
};

/// Parses TOML text; `origin` names it in errors. Values not given keep their defaults.
result<config> parse_config(std::string_view text, std::string_view origin);

result<config> load_config(const std::filesystem::path& file);

/// Where a file of [peer] is; empty when it names none.
std::filesystem::path peer_file(const config& c, const std::filesystem::path& named);

/// A key that has another value.
struct config_change {
  std::string key;          // "gateway.port"
  bool reloadable = false;  // may change while dsecd runs (SIGHUP); else it needs a restart
};
std::vector<config_change> changed_keys(const config& from, const config& to);

/// `running` with what of `wanted` is reloadable.
config with_reloadable(config running, const config& wanted);

/// The effective configuration as TOML; parse_config(dump_config(c)) == c.
std::string dump_config(const config& c);

}  // namespace dsec::base
