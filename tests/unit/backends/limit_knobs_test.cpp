// Which limits are written where.
#include "backends/container/limit_knobs.hpp"

#include <catch2/catch.hpp>

using namespace dsec;
using container::limit_knobs;

namespace {

std::string show(const std::vector<container::knob>& knobs) {
  const char* const levels[] = {"slot/", "init/", "cmd/"};
  std::string text;
  for (const auto& k : knobs)
    text += levels[static_cast<std::size_t>(k.level)] + k.file + "=" + k.value + "\n";
  return text;
}

constexpr backends::limits two_cpus{2000, 64ULL << 20U, 100, 1024};

}  // namespace

TEST_CASE("limits on version 2") {
  CHECK(show(limit_knobs("cpu", 2, two_cpus, nullptr)) ==
        "slot/cpu.weight=200\ncmd/cpu.max=200000 100000\ninit/cpu.max=220000 100000\n");
  CHECK(show(limit_knobs("memory", 2, two_cpus, nullptr)) ==
        "cmd/memory.high=66060288\ncmd/memory.max=67108864\ncmd/memory.swap.max=0\n");
  CHECK(show(limit_knobs("pids", 2, two_cpus, nullptr)) == "cmd/pids.max=100\n");
}

TEST_CASE("limits on version 1") {
  CHECK(show(limit_knobs("cpu", 1, two_cpus, nullptr)) ==
        "slot/cpu.shares=2048\ncmd/cpu.cfs_quota_us=200000\n"
        "init/cpu.cfs_quota_us=220000\n");
  CHECK(show(limit_knobs("memory", 1, two_cpus, nullptr)) ==
        "cmd/memory.limit_in_bytes=67108864\ncmd/memory.memsw.limit_in_bytes=67108864\n");
}

TEST_CASE("memory and swap are raised in the order the kernel accepts") {
  auto more = two_cpus;
  more.memory_bytes *= 2;
  CHECK(limit_knobs("memory", 1, more, &two_cpus)[0].file == "memory.memsw.limit_in_bytes");
  CHECK(limit_knobs("memory", 1, two_cpus, &more)[0].file == "memory.limit_in_bytes");
}

TEST_CASE("limits that hold already are not written again") {
  for (const auto* c : {"cpu", "memory", "pids"})
    CHECK(limit_knobs(c, 2, two_cpus, &two_cpus).empty());
}

TEST_CASE("tiny shares stay within what the kernel takes") {
  backends::limits tiny{1, 1U << 20U, 1, 1};
  CHECK(show(limit_knobs("cpu", 1, tiny, nullptr)).find("cpu.shares=2\n") != std::string::npos);
  CHECK(show(limit_knobs("cpu", 2, tiny, nullptr)).find("cpu.weight=1\n") != std::string::npos);
}
