// How long the container backend takes, printed beside what the kernel takes for the same program.
// Not run by default:
//   integration "[speed]"
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>

#include "backends/container/command_log.hpp"
#include "backends/sys/temp_dir.hpp"
#include "container_rig.hpp"

using namespace dsec;
using namespace dsec::test;

namespace {

using clock_type = std::chrono::steady_clock;

/// Milliseconds of each run, sorted.
template <class F>
std::vector<double> time_each(int n, const F& run) {
  std::vector<double> times;
  for (int i = 0; i < n; ++i) {
    const auto start = clock_type::now();
    run(i);
    times.push_back(std::chrono::duration<double, std::milli>(clock_type::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times;
}

void print(const char* what, const std::vector<double>& sorted) {
  std::printf("%-44s p50 %7.3f ms   p99 %7.3f ms   n %zu\n", what, sorted[sorted.size() / 2],
              sorted[sorted.size() * 99 / 100], sorted.size());
}

/// posix_spawn(3) is a vfork and an exec.
void spawn_and_wait(const std::string& path) {
  std::string word = "exit";
  std::string program = path;
  char* argv[] = {program.data(), word.data(), nullptr};
  pid_t pid = 0;
  REQUIRE(::posix_spawn(&pid, path.c_str(), nullptr, nullptr, argv, nullptr) == 0);
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(status == 0);
}

}  // namespace

TEST_CASE("speed of exec and of a whole life", "[.speed]") {
  container_rig rig({16, 64});
  auto box = rig.start("exec");
  const auto program_file = rig.scope().state / "attack";
  {
    std::ofstream out(program_file, std::ios::binary);
    auto cat = program({"/bin/cat", "/attack"});
    out << box.run(cat).out;
  }
  std::filesystem::permissions(program_file, std::filesystem::perms(0755));
  const auto run_in = [](container_box& b) {
    REQUIRE(b.run(program({"/attack", "exit"})).code() == 0);
  };
  for (int round = 0; round < 2; ++round) {
    print("bare vfork + exec + wait", time_each(300, [&](int) { spawn_and_wait(program_file); }));
    print("exec round trip in a sandbox", time_each(300, [&](int i) {
            auto spec = program({"/attack", "exit"});
            spec.id = "s" + std::to_string(round) + "-" + std::to_string(i);
            REQUIRE(box->exec(spec));
            REQUIRE(box.events().wait_ended(spec.id, 10s));
          }));
  }
  box.stop();
  std::vector<double> starts, firsts, stops;
  const auto whole = time_each(100, [&](int i) {
    rig.backend().refill();
    const auto t0 = clock_type::now();
    auto b = rig.start("life-" + std::to_string(i));
    const auto t1 = clock_type::now();
    run_in(b);
    const auto t2 = clock_type::now();
    b.stop();
    const auto t3 = clock_type::now();
    const auto ms = [](auto d) { return std::chrono::duration<double, std::milli>(d).count(); };
    starts.push_back(ms(t1 - t0));
    firsts.push_back(ms(t2 - t0));
    stops.push_back(ms(t3 - t2));
  });
  for (auto* v : {&starts, &firsts, &stops}) std::sort(v->begin(), v->end());
  print("start(), slots ready", starts);
  print("start() to the first command's result", firsts);
  print("stop()", stops);
  print("whole life with its slot's making", whole);
}

TEST_CASE("speed of taking over", "[.speed]") {
  constexpr int count = 60;
  container_rig rig({16, 64});
  {
    std::vector<container_box> boxes;
    for (int i = 0; i < count; ++i) {
      boxes.push_back(rig.start("n" + std::to_string(i)));
      boxes.back().sh("echo ended");
      boxes.back().begin_sh("sleep 1000");
    }
    rig.backend().leave();
  }
  rig.leave();
  print("backend: open over 60 sandboxes", time_each(1, [&](int) { rig.open_only(); }));
  std::vector<container_rig::taken_box> taken;
  print("instance: recover",
        time_each(count, [&](int i) { taken.push_back(rig.recover("n" + std::to_string(i))); }));
  CHECK(std::all_of(taken.begin(), taken.end(), [](const auto& t) { return t.what.alive; }));
  print("backend: end_unrecovered, 16 slots ready",
        time_each(1, [&](int) { rig.end_unrecovered(); }));
  print("instance: first command of one that was taken over",
        time_each(count, [&](int i) { taken[static_cast<std::size_t>(i)].box.sh("true"); }));
  for (auto& t : taken) t.box.stop();
}

TEST_CASE("speed of the command log", "[.speed]") {
  const auto dir = sys::temp_dir::make("dsec-log-speed");
  REQUIRE(dir);
  container::command_log log(dir->path());
  auto spec = program({"/bin/sh", "-c", "echo hello"});
  container::exited_record exited;
  print("command log: what an exec waits for", time_each(20'000, [&](int i) {
          spec.id = "command-" + std::to_string(i);
          REQUIRE(log.begin(container::describe(spec, 64U << 20U)));
        }));
  print("command log: its end", time_each(20'000, [&](int i) {
          exited.event.id = "command-" + std::to_string(i);
          log.note(exited);
        }));
  print("command log: compaction of 20,000", time_each(3, [&](int) { REQUIRE(log.compact()); }));
  print("command log: load of 20,000", time_each(3, [&](int) {
          REQUIRE(container::command_log(dir->path()).load()->commands.size() == 20'000);
        }));
}
