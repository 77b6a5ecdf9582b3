#include "base/phase.hpp"

#include <array>
#include <string>
#include <utility>

namespace dsec::base {
namespace {

constexpr std::array<std::string_view, phase_count> phase_names{
    "requested",     "admitted",  "preparing", "starting", "running", "paused",
    "checkpointing", "migrating", "stopping",  "stopped",  "failed"};

constexpr std::array<std::string_view, 11> cause_names{
    "none",     "exit", "oom",        "ttl",          "killed", "fingerprint",
    "precheck", "lost", "disk_quota", "output_limit", "backend"};

using edge = std::pair<phase, phase>;
constexpr std::array edges{
    edge{phase::requested, phase::admitted},    edge{phase::requested, phase::failed},
    edge{phase::admitted, phase::preparing},    edge{phase::admitted, phase::failed},
    edge{phase::preparing, phase::starting},    edge{phase::preparing, phase::failed},
    edge{phase::starting, phase::running},      edge{phase::starting, phase::failed},
    edge{phase::running, phase::paused},        edge{phase::paused, phase::running},
    edge{phase::running, phase::checkpointing}, edge{phase::checkpointing, phase::running},
    edge{phase::paused, phase::checkpointing},  edge{phase::checkpointing, phase::paused},
    edge{phase::running, phase::migrating},     edge{phase::migrating, phase::running},
    edge{phase::running, phase::failed},        edge{phase::paused, phase::failed},
    edge{phase::checkpointing, phase::failed},  edge{phase::migrating, phase::failed},
    edge{phase::migrating, phase::stopped},     edge{phase::stopping, phase::stopped},
    edge{phase::stopping, phase::failed},
};

}  // namespace

std::string_view to_string(phase p) {
  return phase_names[static_cast<std::size_t>(p)];
}
std::string_view to_string(cause c) {
  return cause_names[static_cast<std::size_t>(c)];
}

result<phase> parse_phase(std::string_view name) {
  for (std::size_t i = 0; i < phase_names.size(); ++i) {
    if (phase_names[i] == name) return static_cast<phase>(i);
  }
  return fail(errc::corrupt, "unknown phase '" + std::string(name) + "'");
}

result<cause> parse_cause(std::string_view name) {
  for (std::size_t i = 0; i < cause_names.size(); ++i) {
    if (cause_names[i] == name) return static_cast<cause>(i);
  }
  return fail(errc::corrupt, "unknown cause '" + std::string(name) + "'");
}

bool is_terminal(phase p) {
  return p == phase::stopped || p == phase::failed;
}

bool can_transition(phase from, phase to) {
  if (to == phase::stopping) return !is_terminal(from) && from != phase::stopping;
  for (const auto& [f, t] : edges) {
    if (f == from && t == to) return true;
  }
  return false;
}

}  // namespace dsec::base
