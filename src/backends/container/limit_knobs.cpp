#include "backends/container/limit_knobs.hpp"

#include <algorithm>

namespace dsec::container {
namespace {

using backends::limits;

/// What a new group has. Never written on version 1: every write to a file of its bandwidth walks
/// the CPU groups of the whole host (walk_tg_tree() in the kernel's kernel/sched/core.c).
constexpr std::uint64_t cpu_period_us = 100'000;
/// What aether and the spawner may use over the commands' own quota: copying output costs about as
/// much as making it, and must not be had for nothing.
constexpr std::uint64_t init_extra_us = cpu_period_us / 5;

std::string text(std::uint64_t value) {
  return std::to_string(value);
}

/// Quotas of the commands and of aether; the weight stands one level up, where sandboxes compete
/// with each other.
std::vector<knob> cpu_knobs(int version, const limits& l) {
  const auto quota = std::max<std::uint64_t>(1000, cpu_period_us * l.cpu_millis / 1000);
  if (version == 1) {
    const auto shares = std::clamp<std::uint64_t>(1024ULL * l.cpu_millis / 1000, 2, 262'144);
    return {{group_level::slot, "cpu.shares", text(shares)},
            {group_level::cmd, "cpu.cfs_quota_us", text(quota)},
            {group_level::init, "cpu.cfs_quota_us", text(quota + init_extra_us)}};
  }
  const auto weight = std::clamp<std::uint64_t>(100ULL * l.cpu_millis / 1000, 1, 10'000);
  return {{group_level::slot, "cpu.weight", text(weight)},
          {group_level::cmd, "cpu.max", text(quota) + " " + text(cpu_period_us)},
          {group_level::init, "cpu.max", text(quota + init_extra_us) + " " + text(cpu_period_us)}};
}

/// Memory and swap together are bounded by the memory limit.
std::vector<knob> memory_knobs(int version, const limits& l, const limits* before) {
  if (version == 1) {
    knob memory{group_level::cmd, "memory.limit_in_bytes", text(l.memory_bytes)};
    knob with_swap{group_level::cmd, "memory.memsw.limit_in_bytes", text(l.memory_bytes), true};
    // The kernel refuses memory > memory + swap at every moment: raise the sum first, lower it
    // last.
    if (before != nullptr && before->memory_bytes < l.memory_bytes) return {with_swap, memory};
    return {memory, with_swap};
  }
  // Reclaim starts a little below the limit; 1/64 keeps the throttling between the two below a
  // second.
  return {{group_level::cmd, "memory.high", text(l.memory_bytes - l.memory_bytes / 64)},
          {group_level::cmd, "memory.max", text(l.memory_bytes)},
          {group_level::cmd, "memory.swap.max", "0", true}};
}

}  // namespace

std::vector<knob> limit_knobs(const std::string& controller, int version, const limits& wanted,
                              const limits* before) {
  if (controller == "cpu") {
    if (before != nullptr && before->cpu_millis == wanted.cpu_millis) return {};
    return cpu_knobs(version, wanted);
  }
  if (controller == "memory") {
    if (before != nullptr && before->memory_bytes == wanted.memory_bytes) return {};
    return memory_knobs(version, wanted, before);
  }
  if (before != nullptr && before->pids == wanted.pids) return {};
  return {{group_level::cmd, "pids.max", text(wanted.pids)}};
}

}  // namespace dsec::container
