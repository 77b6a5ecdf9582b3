// Root inside a sandbox against the platform: each attack of src/guest/attack must be denied or
// stay inside. Needs root.
#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <future>
#include <thread>

#include "container_rig.hpp"
#include "support/length.hpp"

using namespace dsec;
using namespace dsec::test;

namespace {

/// Runs checks of the attack program that must all be denied; a minimum says that they were made at
/// all.
void denied(container_box& box, const char* name, int at_least) {
  const auto r = box.run(program({"/attack", name}), 60s);
  REQUIRE(r.exited);
  INFO(r.out << r.err << "exit " << r.exited->exit_code << (r.exited->killed ? " killed" : "")
             << (r.exited->oom_killed ? " oom" : ""));
  CHECK(r.code() == 0);
  CHECK(r.out.find("hole:") == std::string::npos);
  const auto last = r.out.rfind("denied ");
  REQUIRE(last != std::string::npos);
  CHECK(std::stoi(r.out.substr(last + 7)) >= at_least);
  CHECK(box.events().times_gone() == 0);
  CHECK(box.sh("echo alive").out == "alive\n");
}

void denied(const char* name, int at_least) {
  container_rig rig;
  auto box = rig.start(std::string("victim-") + name);
  denied(box, name, at_least);
  box.stop();
}

/// Host pid of the spawner of the rig's only sandbox.
std::optional<pid_t> spawner_of(const container_rig& rig) {
  for (const pid_t pid : rig.inhabitants()) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/comm");
    std::string name;
    if (in >> name && name == "spawner") return pid;
  }
  return std::nullopt;
}

/// Commands in sandboxes beside the attacked one; every one must succeed.
class siblings {
 public:
  siblings(container_rig& rig, int boxes, int commands) {
    for (int b = 0; b < boxes; ++b) boxes_.push_back(rig.start("sibling-" + std::to_string(b)));
    for (int b = 0; b < boxes; ++b)
      threads_.emplace_back([this, b, n = commands / boxes] { run(boxes_[b], n); });
  }
  ~siblings() {
    for (auto& t : threads_) t.join();
    for (auto& b : boxes_) b.stop();
  }
  siblings(const siblings&) = delete;
  siblings& operator=(const siblings&) = delete;

  int finish() {
    for (auto& t : threads_) t.join();
    threads_.clear();
    return good_;
  }

 private:
  void run(container_box& box, int commands) {
    for (int i = 0; i < commands; ++i) {
      const auto text = std::to_string(i) + "\n";
      try {
        const auto r = box.run(program({"/bin/echo", std::to_string(i)}), 30s);
        if (r.code() == 0 && r.out == text) ++good_;
      } catch (const std::exception&) {
        return;
      }
    }
  }

  std::vector<container_box> boxes_;
  std::vector<std::thread> threads_;
  std::atomic<int> good_{0};
};

/// Every command of the attacked sandbox ends with a typed result within the promised five seconds.
void check_typed_result(container_box& box, int i) {
  auto spec = program({"/bin/echo", "here"});
  spec.id = "probe-" + std::to_string(i);
  spec.timeout = 2s;  // a command that is stopped for good cannot end otherwise
  if (const auto sent = box->exec(spec); !sent) {
    CHECK(sent.error().code == base::errc::capacity);
    return;
  }
  const auto end = box.events().wait_ended(spec.id, 5s);
  INFO(spec.id);
  REQUIRE(end);
  CHECK((end->exited || end->failed));
}

void under_attack(const std::vector<std::string>& attack) {
  container_rig rig({4, 64});
  auto victim = rig.start("attacked");
  const int commands = 4 * length(25);
  siblings beside(rig, 4, commands);
  const auto id = victim.begin(program(attack));
  for (int i = 0; i < length(30); ++i) check_typed_result(victim, i);
  CHECK(beside.finish() == commands);
  CHECK(victim.events().times_gone() == 0);
  // The attacker may have been hit by an attack of its own kind; if not, it can be killed.
  if (!victim.events().wait_ended(id, 0ms)) REQUIRE(victim->kill(id));
  CHECK(victim.events().wait_ended(id, 20s));
  CHECK(eventually([&] { return victim->usage()->tasks == 0; }, 20s));
  CHECK(victim.sh("echo again").out == "again\n");
  victim.stop();
}

}  // namespace

TEST_CASE("root inside has no hold on aether", "[kernel][container][threat-1]") {
  denied("init", 100);
}

TEST_CASE("root inside cannot reboot anything", "[kernel][container][threat-1]") {
  denied("reboot", 3);
}

TEST_CASE("a kill is not lost to the second try after the spawner's death",
          "[kernel][container][threat-1]") {
  container_rig rig;
  recorder events;
  std::promise<void> in_callback, go_on;
  auto sink = events.sink();
  sink.started = [&, note = sink.started](const backends::command_started& e) {
    note(e);
    if (e.id != "blocker") return;
    in_callback.set_value();  // events wait from here on, as they may on a busy host
    go_on.get_future().wait();
  };
  auto started = rig.backend().start(container_rig::spec("late-kill"), sink);
  REQUIRE(started);
  container_box box(std::move(*started), events);
  const auto old = spawner_of(rig);
  REQUIRE(old);
  auto blocker = program({"/bin/true"});
  blocker.id = "blocker";
  REQUIRE(box->exec(blocker));
  in_callback.get_future().wait();
  REQUIRE(::kill(*old, SIGSTOP) == 0);
  auto victim = program({"/bin/sleep", "1000"});
  victim.id = "victim";
  REQUIRE(box->exec(victim));
  REQUIRE(::kill(*old, SIGKILL) == 0);
  // aether has said that it failed once there is another spawner.
  CHECK(eventually([&] {
    const auto next = spawner_of(rig);
    return next && next != old;
  }));
  CHECK(box->kill("victim"));
  go_on.set_value();
  const auto end = events.wait_ended("victim", 10s);
  CHECK(end);
  CHECK(events.wait_ended("blocker", 10s));
  CHECK(box.sh("ps | grep -c '[s]leep 1000'").out == "0\n");
  box.stop();
}

TEST_CASE("what the platform mounted stays mounted as it is", "[kernel][container][threat-1]") {
  denied("mounts", 80);
}

TEST_CASE("control groups cannot be changed, joined or left from inside",
          "[kernel][container][threat-1]") {
  container_rig rig;
  auto box = rig.start("victim-groups");
  const auto other = box.begin(program({"/attack", "offer-group", "120"}));
  const auto said = [&] {
    const auto piece = box->read_output(other, backends::stream::out, 0, 100, std::nullopt);
    return piece ? piece->data : std::string();
  };
  REQUIRE(eventually([&] { return !said().empty(); }));
  REQUIRE(said() == "offered\n");
  denied(box, "groups", 40);
  REQUIRE(box->kill(other));
  CHECK(box.wait(other).exited->killed);
  box.stop();
}

TEST_CASE("SIGSTOP to everybody, in a loop, beside commands of siblings",
          "[kernel][container][threat-1]") {
  under_attack({"/attack", "stop-all", "120"});
}

TEST_CASE("SIGKILL to everybody, in a loop, beside commands of siblings",
          "[kernel][container][threat-1]") {
  under_attack({"/attack", "kill-all", "120"});
}

TEST_CASE("one sandbox cannot take the terminals of its siblings",
          "[kernel][container][threat-8]") {
  container_rig rig;
  auto greedy = rig.start("greedy");
  auto sibling = rig.start("sibling");
  const auto id = greedy.begin(program({"/attack", "ptys", "120"}));
  const auto said = [&] {
    const auto piece = greedy->read_output(id, backends::stream::out, 0, 100, std::nullopt);
    return piece ? piece->data : std::string();
  };
  REQUIRE(eventually([&] { return said().find('\n') != std::string::npos; }, 20s));
  CHECK(said() == "ptys 256\n");
  CHECK(sibling.run(program({"/attack", "ptys", "0"})).out == "ptys 256\n");
  REQUIRE(greedy->kill(id));
  CHECK(greedy.events().wait_ended(id, 20s));
  greedy.stop();
  sibling.stop();
}

TEST_CASE("a fork bomb beside commands of siblings", "[kernel][container][threat-1][threat-6]") {
  under_attack({"/attack", "fork-bomb", "120"});
}
