#include "actors/create_request.hpp"

#include <capnp/message.h>

#include <algorithm>
#include <array>
#include <map>

#include "actors/text_checks.hpp"
#include "base/ids.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "proto/limits.hpp"

namespace dsec::actors {
namespace {

using base::errc;
using base::fail;

constexpr std::array<std::string_view, 3> services{"apt", "npm", "pypi"};
constexpr std::size_t max_env_bytes = 256UL * 1024;  // in all: records carry it
constexpr std::size_t max_label_bytes = 4096;        // of all labels together: listings carry them

// Below these nothing starts at all; cpu.max knows no quota under 1 ms per 100 ms.
constexpr std::uint32_t min_cpu_millis = 10;
constexpr std::uint32_t min_memory_mb = 16;
constexpr std::uint32_t min_pids = 16;

base::result<std::uint32_t> chosen(std::uint32_t value, std::uint32_t fallback, std::uint32_t least,
                                   std::string_view field) {
  if (value == 0) return fallback;
  if (value < least) {
    return fail(errc::invalid_argument, std::string(field) + " must be 0 (default) or at least " +
                                            std::to_string(least) + ", not " +
                                            std::to_string(value));
  }
  return value;
}

base::result<void> read_images(proto::CreateSandbox::Reader request, create_request& out) {
  DSEC_TRY(out.images.base, text(request.getImage(), "image", 256));
  if (out.images.base.empty())
    return fail(errc::invalid_argument, "image is missing; name a base image as NAME:TAG");
  DSEC_TRY(out.images.workspace, text(request.getWorkspace(), "workspace", 256));
  if (request.getToolkits().size() > proto::max_toolkits) {
    return fail(errc::invalid_argument,
                "more than " + std::to_string(proto::max_toolkits) + " toolkits");
  }
  for (const auto toolkit : request.getToolkits()) {
    DSEC_TRY(auto reference, text(toolkit, "toolkits", 256));
    if (reference.empty()) return fail(errc::invalid_argument, "toolkits has an empty name");
    out.images.toolkits.push_back(std::move(reference));
  }
  out.spec.image = out.images.base;
  out.spec.workspace = out.images.workspace;
  out.spec.toolkits = out.images.toolkits;
  return {};
}

base::result<void> read_limits(proto::CreateSandbox::Reader request,
                               const base::sandbox_config& defaults, backends::limits& out) {
  DSEC_TRY(out.cpu_millis,
           chosen(request.getCpuMillis(), defaults.cpu_millis, min_cpu_millis, "cpu_millis"));
  DSEC_TRY(const auto mb,
           chosen(request.getMemoryMb(), defaults.memory_mb, min_memory_mb, "memory_mb"));
  out.memory_bytes = std::uint64_t{mb} << 20U;
  DSEC_TRY(out.pids, chosen(request.getPidsLimit(), defaults.pids, min_pids, "pids_limit"));
  out.nofile = defaults.nofile;
  return {};
}

base::result<void> read_network_rules(proto::CreateSandbox::Reader request, sandbox_spec& out) {
  std::map<std::string, bool> seen;
  for (const auto rule : request.getNetworkRules()) {
    DSEC_TRY(const auto service, text(rule.getService(), "network_rules", 64));
    if (std::find(services.begin(), services.end(), service) == services.end()) {
      return fail(errc::invalid_argument,
                  "network_rules: unknown service '" + service + "'; there are apt, npm and pypi");
    }
    const auto [known, fresh] = seen.emplace(service, rule.getAllow());
    if (!fresh && known->second != rule.getAllow()) {
      return fail(errc::invalid_argument, "network_rules both allow and deny '" + service + "'");
    }
    if (fresh && rule.getAllow()) {
      out.warnings.push_back("network rule for '" + service +
                             "' has no effect: sandboxes of this version have no network");
    }
  }
  return {};
}

base::result<void> read_on_failure(proto::CreateSandbox::Reader request, sandbox_spec& out) {
  switch (request.getOnFailure()) {
    case proto::OnFailure::NONE:
      return {};
    case proto::OnFailure::SNAPSHOT:
      out.on_failure = on_failure::snapshot;
      out.warnings.emplace_back(
          "on_failure 'snapshot' is not available yet: a sandbox that fails keeps nothing");
      return {};
  }
  return fail(errc::invalid_argument,
              "on_failure: there are none and snapshot, not number " +
                  std::to_string(static_cast<std::uint16_t>(request.getOnFailure())));
}

base::result<void> read_labels(proto::CreateSandbox::Reader request, sandbox_spec& out) {
  std::size_t bytes = 0;
  for (const auto label : request.getLabels()) {
    DSEC_TRY(auto name, text(label.getName(), "labels", max_label_bytes));
    DSEC_TRY(auto value, text(label.getValue(), "labels", max_label_bytes));
    if (name.empty()) return fail(errc::invalid_argument, "labels has an empty name");
    if (!base::is_utf8(name) || !base::is_utf8(value))
      return fail(errc::invalid_argument, "label '" + base::shown(name, 80) + "' is not UTF-8");
    bytes += name.size() + value.size();
    out.labels.emplace_back(std::move(name), std::move(value));
  }
  if (bytes > max_label_bytes) {
    return fail(errc::invalid_argument,
                "labels are longer than " + std::to_string(max_label_bytes) + " bytes");
  }
  return {};
}

base::result<void> read_identity(proto::CreateSandbox::Reader request, sandbox_spec& out) {
  DSEC_TRY(out.env, environment(request.getEnv(), "env"));
  std::size_t bytes = 0;
  for (const auto& variable : out.env) bytes += variable.size() + 1;
  if (bytes > max_env_bytes) {
    return fail(errc::invalid_argument,
                "env of a sandbox is larger than " + std::to_string(max_env_bytes) +
                    " bytes; give large values to the commands that need them");
  }
  DSEC_TRY(out.user, text(request.getInitUser(), "init_user", 256));
  DSEC_TRY(out.workdir, absolute_path(request.getWorkdir(), "workdir"));
  DSEC_TRY(out.hostname, text(request.getHostname(), "hostname", base::max_id_length));
  if (!out.hostname.empty() && !base::is_valid_id(out.hostname)) {
    return fail(errc::invalid_argument,
                "hostname '" + out.hostname +
                    "' must be of lower-case letters, digits and '-', at most 63");
  }
  return {};
}

// Two encodings of one message (far pointers, padding) have one canonical form, so a client that
// builds its message anew for a retry is not told that it asked for something else.
std::string canonical_hash(proto::CreateSandbox::Reader request) {
  const auto words = capnp::canonicalize(request);
  const auto bytes = words.asBytes();
  return base::sha256_of({reinterpret_cast<const char*>(bytes.begin()), bytes.size()});
}

}  // namespace

base::result<create_request> parse_create(proto::CreateSandbox::Reader request,
                                          const base::sandbox_config& defaults,
                                          const std::string& backend) {
  create_request out;
  DSEC_TRY(out.spec.backend, text(request.getBackend(), "backend", 64));
  if (out.spec.backend.empty()) out.spec.backend = backend;
  if (out.spec.backend != backend) {
    return fail(errc::unsupported, "backend '" + out.spec.backend +
                                       "' is not available here; there is '" + backend + "'");
  }
  DSEC_CHECK(read_images(request, out));
  DSEC_CHECK(read_limits(request, defaults, out.spec.limits));
  out.spec.idle_ttl_seconds = request.getIdleTtlSeconds();
  out.spec.absolute_ttl_seconds = request.getAbsoluteTtlSeconds();
  DSEC_CHECK(read_identity(request, out.spec));
  DSEC_CHECK(read_network_rules(request, out.spec));
  DSEC_CHECK(read_on_failure(request, out.spec));
  DSEC_CHECK(read_labels(request, out.spec));
  out.detached = request.getDetached();
  out.body_hash = canonical_hash(request);
  return out;
}

sandbox_spec complete(create_request request, const resolved_images& images) {
  auto spec = std::move(request.spec);
  spec.layers = images.layers;
  std::vector<std::string> from_image;
  for (const auto& [name, value] : images.config.env) {
    auto variable = name;
    variable.append("=").append(value);
    from_image.push_back(std::move(variable));
  }
  spec.env = overlay(std::move(from_image), spec.env);
  if (spec.user.empty()) spec.user = images.config.user.value_or("");
  if (spec.user.empty()) spec.user = "root";
  if (spec.workdir.empty()) spec.workdir = images.config.cwd.value_or("");
  if (spec.workdir.empty()) spec.workdir = "/";
  spec.entrypoint = images.config.entrypoint;
  spec.cmd = images.config.cmd;
  return spec;
}

}  // namespace dsec::actors
