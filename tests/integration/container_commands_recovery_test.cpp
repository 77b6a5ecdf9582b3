// What the next container backend knows of the commands of one that was killed: their output, their
// ends, which ids are used up. Needs root.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "backends/container/command_log.hpp"
#include "base/ids.hpp"
#include "earlier_daemon.hpp"

using namespace dsec;
using namespace dsec::test;
using base::errc;

namespace {

using backends::known_command;

bool knows(const backends::recovered& r, const std::string& id) {
  return std::any_of(r.commands.begin(), r.commands.end(),
                     [&](const auto& c) { return c.id == id; });
}

bool is_used_up(const backends::recovered& r, const std::string& id) {
  return std::count(r.used_up.begin(), r.used_up.end(), base::id_hash(id)) == 1;
}

backends::exec_spec write_of(const std::string& id, const std::string& path) {
  backends::exec_spec spec;
  spec.id = id;
  spec.kind = backends::exec_kind::write_file;
  spec.argv = {path};
  spec.stdin_data = "0123456789";
  return spec;
}

/// As long as it exists this process, and nobody else, finds no room behind what `file` has now.
class full_file {
 public:
  explicit full_file(const std::filesystem::path& file) {
    ::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit full{std::filesystem::file_size(file), before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
  }
  ~full_file() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  full_file(const full_file&) = delete;
  full_file& operator=(const full_file&) = delete;

 private:
  rlimit before_{};
};

std::filesystem::path spools_of(const container_rig& rig, const std::string& id) {
  return rig.scope().state / "sandboxes" / id / "spool";
}

/// As the next daemon would read it now.
known_command written_down(const container_rig& rig, const std::string& id,
                           const std::string& command) {
  const auto all = container::command_log(spools_of(rig, id)).load();
  REQUIRE(all);
  for (const auto& c : all->commands) {
    if (c.known.id == command) return c.known;
  }
  FAIL("'" << command << "' is not written down");
  return {};
}

/// The numbers 1 to `last`, as seq(1) prints them.
std::string numbers(int last) {
  std::string text;
  for (int i = 1; i <= last; ++i) text += std::to_string(i) + "\n";
  return text;
}

}  // namespace

TEST_CASE(
    "a command that runs when the daemon is killed goes on: its end and all its output reach "
    "the next one",
    "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before(rig, "kept", [&](container_box& box) {
    box.begin(with_id(shell("seq 1 50000; while ! test -e /go; do sleep 0.01; done; "
                            "seq 50001 100000; exit 7"),
                      "long"));
  });
  before.kill();
  auto [box, what] = rig.inherit("kept");
  CHECK(what.alive);
  CHECK(std::holds_alternative<known_command::pending>(command(what, "long").end));
  CHECK(box.events().wait_started("long", 10s));
  CHECK(box.sh("touch /go; echo touched").out == "touched\n");
  const auto end = box.wait("long");
  CHECK(end.code() == 7);
  CHECK(end.out == numbers(100'000));
  CHECK(box.events().times_gone() == 0);
  CHECK(eventually([&] {
    const auto used = box->usage();
    return used && used->tasks == 0;
  }));
  box.stop();
  CHECK(rig.inhabitants().empty());
}

TEST_CASE("how commands ended, and which ids are used up, is known to the next daemon",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before(rig, "kept", [&](container_box& box) {
    box.run(with_id(shell("echo out; echo err >&2; exit 3"), "ended"));
    box.run(with_id(program({"/bin/nothing"}), "refused"));
    box.run(with_id(shell("true"), "forgotten"));
    box->forget("forgotten");
    box.run(with_id(program({"/bin/nothing"}), "withdrawn"));
    box->withdraw("withdrawn");
    box.run(write_of("dsec.w.written", "/written"));
    box.run(write_of("dsec.w.told", "/told"));
    box->forget("dsec.w.told");
    box.run(write_of("dsec.file1", "/passing"));
  });
  before.kill();
  auto [box, what] = rig.inherit("kept");

  REQUIRE(what.commands.size() == 4);
  const auto& ended = command(what, "ended");
  REQUIRE(std::holds_alternative<backends::command_exited>(ended.end));
  const auto& exit = std::get<backends::command_exited>(ended.end);
  CHECK(exit.exit_code == 3);
  CHECK(exit.stdout_total == 4);
  CHECK(ended.argv == std::vector<std::string>{"echo out; echo err >&2; exit 3"});
  CHECK(ended.output_cap == backends::exec_spec().output_cap);
  CHECK(ended.started);
  CHECK(box->read_output("ended", backends::stream::out, 0, 10, 4)->data == "out\n");
  CHECK(box->read_output("ended", backends::stream::err, 0, 10, 4)->data == "err\n");
  const auto& refused = std::get<backends::command_failed>(command(what, "refused").end);
  CHECK(refused.why.code == errc::exec_failed);
  CHECK(refused.why.message == "cannot run '/bin/nothing': No such file or directory");
  for (const auto* id : {"dsec.w.written", "dsec.w.told"}) {
    CHECK(command(what, id).written_size == 10);
    CHECK(command(what, id).kind == backends::exec_kind::write_file);
  }
  CHECK(is_used_up(what, "forgotten"));
  CHECK_FALSE(is_used_up(what, "withdrawn"));
  CHECK(what.used_up.size() == 1);

  CHECK(box->exec(with_id(shell("true"), "ended")).error().code == errc::already_exists);
  CHECK(box->exec(with_id(shell("true"), "refused")).error().code == errc::already_exists);
  CHECK(box.run(with_id(shell("echo again"), "withdrawn")).out == "again\n");
  CHECK(box.sh("cat /written /told /passing").out == "012345678901234567890123456789");
  box.stop();
}

TEST_CASE("a command that was written down and never arrived has not run, and its id is free",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before(rig, "kept");
  before.kill();
  const auto spools = rig.scope().state / "sandboxes/kept/spool";
  container::begun_record never;
  never.id = "never";
  never.argv = {"/bin/echo"};
  never.spool_cap = never.output_cap = 4096;
  REQUIRE(container::command_log(spools).begin(never));
  std::ofstream(spools / "never.out");
  std::ofstream(spools / "dsec.file3.out") << "of no command";
  auto [box, what] = rig.inherit("kept");
  CHECK(knows(what, "never"));
  CHECK_FALSE(std::filesystem::exists(spools / "dsec.file3.out"));
  const auto end = box.events().wait_ended("never", 10s);
  REQUIRE(end);
  REQUIRE(end->failed);
  CHECK(end->failed->code == errc::unavailable);
  box->withdraw("never");
  // The recorder has its first end still, so the output tells.
  REQUIRE(box->exec(with_id(shell("echo now"), "never")));
  CHECK(eventually([&] {
    const auto piece = box->read_output("never", backends::stream::out, 0, 10, std::nullopt);
    return piece && piece->data == "now\n";
  }));
  box.stop();
}

TEST_CASE("a stream loses no byte over ten kills of the daemon", "[container][recovery]") {
  constexpr int last = 3'000'000;
  container_rig rig({0, 64}, false);
  earlier_daemon first(rig, "stream", [&](container_box& box) {
    box.begin(
        with_id(shell("for i in $(seq 0 299); do seq $((i * 10000 + 1)) $((i * 10000 + 10000));"
                      " sleep 0.01; done"),
                "numbers"));
  });
  first.kill();
  for (int i = 0; i < 9; ++i) {
    earlier_daemon next([&] {
      std::vector<container_box> kept;
      kept.push_back(rig.inherit("stream").box);
      kept.front().sh("true");
      return kept;
    });
    next.kill();
  }
  auto [box, what] = rig.inherit("stream");
  REQUIRE(what.alive);
  CHECK(std::holds_alternative<known_command::pending>(command(what, "numbers").end));
  const auto end = box.wait("numbers", 300s);
  CHECK(end.code() == 0);
  const bool complete = end.out == numbers(last);
  CHECK(complete);
  box.stop();
}

TEST_CASE("a command that cannot be written down is not started", "[kernel][container][recovery]") {
  container_rig rig;
  auto box = rig.start("full");
  const auto log = rig.scope().state / "sandboxes/full/spool/commands.log";
  std::filesystem::remove(log);
  std::filesystem::create_directory(log);
  const auto refused = box->exec(with_id(shell("echo ran > /ran"), "c"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("disk: command 'c' cannot be written down") == 0);
  std::filesystem::remove(log);
  CHECK(box.run(with_id(shell("cat /ran; true"), "c")).out.empty());
  box.stop();
}

TEST_CASE("a sandbox whose log cannot be read lives on sealed, until one comes that can read it",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before([&] {
    rig.open();
    std::vector<container_box> kept;
    kept.push_back(rig.start("kept"));
    kept.front().begin(with_id(shell("echo ran >> /runs; sleep 1; exit 5"), "once"));
    return kept;
  });
  before.kill();
  const auto log = spools_of(rig, "kept") / "commands.log";
  const auto aside = rig.scope().state / "aside";
  std::filesystem::rename(log, aside);
  std::filesystem::create_directory(log);
  earlier_daemon sealed([&] {
    rig.open_only();
    std::vector<container_box> kept;
    auto [box, what] = rig.recover("kept");
    REQUIRE(what.sealed);
    REQUIRE(what.alive);
    REQUIRE(box->exec(with_id(shell("echo ran >> /runs"), "once")).error().code == errc::io);
    REQUIRE(box->exec(with_id(shell("true"), "other")).error().code == errc::io);
    rig.end_unrecovered();
    kept.push_back(std::move(box));
    return kept;
  });
  sealed.kill();
  std::filesystem::remove(log);
  std::filesystem::rename(aside, log);
  auto [box, what] = rig.inherit("kept");
  CHECK_FALSE(what.sealed);
  const auto end = box.events().wait_ended("once", 20s);
  REQUIRE(end);
  REQUIRE(end->exited);
  CHECK(end->exited->exit_code == 5);
  CHECK(box.sh("cat /runs").out == "ran\n");
  box.stop();
}

TEST_CASE("what could not be written down for want of room is not forgotten inside, and runs once",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before([&] {
    rig.open();
    std::vector<container_box> kept;
    kept.push_back(rig.start("kept"));
    auto& box = kept.front();
    box.begin(with_id(shell("echo ran >> /runs; echo up; exec sleep 1000"), "once"));
    REQUIRE(eventually([&] {
      return box->read_output("once", backends::stream::out, 0, 10, std::nullopt)->data == "up\n";
    }));
    static const full_file log(spools_of(rig, "kept") / "commands.log");  // until it is killed
    REQUIRE(box->kill("once"));
    REQUIRE(box.events().wait_ended("once", 10s));
    box->forget("once");
    return kept;
  });
  before.kill();
  auto [box, what] = rig.inherit("kept");
  CHECK(std::holds_alternative<known_command::pending>(command(what, "once").end));
  const auto end = box.events().wait_ended("once", 10s);
  REQUIRE(end);
  CHECK_FALSE(end->failed);
  REQUIRE(end->exited);
  CHECK(end->exited->killed);
  CHECK(box->exec(with_id(shell("echo ran >> /runs"), "once")).error().code ==
        errc::already_exists);
  CHECK(box.sh("cat /runs").out == "ran\n");
  box.stop();
}

TEST_CASE("what ended while there was no room is written down when there is some",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64});
  auto box = rig.start("late");
  for (const auto* id : {"first", "second"}) box.begin(with_id(shell("exec sleep 1000"), id));
  {
    const full_file log(spools_of(rig, "late") / "commands.log");
    for (const auto* id : {"first", "second"}) {
      REQUIRE(box->kill(id));
      REQUIRE(box.events().wait_ended(id, 10s));
    }
    box->withdraw("second");
  }
  SECTION("by itself") {
    CHECK(eventually([&] {
      return std::holds_alternative<backends::command_exited>(
          written_down(rig, "late", "first").end);
    }));
  }
  SECTION("before the next command, and before that reaches the sandbox") {
    CHECK(box.sh("echo next").out == "next\n");
  }
  SECTION("when the daemon leaves") {
    rig.backend().leave();
    { const auto gone = std::move(box); }
    CHECK(std::holds_alternative<backends::command_exited>(written_down(rig, "late", "first").end));
    rig.leave();
    rig.inherit("late").box.stop();
    return;
  }
  CHECK(std::holds_alternative<backends::command_exited>(written_down(rig, "late", "first").end));
  REQUIRE(box->exec(with_id(shell("echo again"), "second")));
  CHECK(eventually([&] {
    const auto piece = box->read_output("second", backends::stream::out, 0, 10, std::nullopt);
    return piece && piece->data == "again\n";
  }));
  box.stop();
}

TEST_CASE("aether is asked of more commands than its channel takes at once",
          "[kernel][container][recovery]") {
  constexpr int many = 1500;  // more than the channel takes, fewer answers than aether keeps
  container_rig rig({2, 64}, false);
  earlier_daemon before(rig, "kept");
  before.kill();
  const auto all = rig.inhabitants();
  REQUIRE_FALSE(all.empty());
  const auto aether = *std::min_element(all.begin(), all.end());
  container::command_log log(spools_of(rig, "kept"));
  for (int i = 0; i < many; ++i) {
    container::begun_record never;
    never.id = "never" + std::to_string(i);
    never.argv = {"/bin/echo"};
    never.spool_cap = never.output_cap = 4096;
    REQUIRE(log.begin(never));
  }
  log.close();
  REQUIRE(::kill(aether, SIGSTOP) == 0);
  rig.open_only();
  auto taken = rig.try_recover("kept");
  REQUIRE(::kill(aether, SIGCONT) == 0);
  REQUIRE(taken);
  rig.end_unrecovered();
  auto& [box, what] = *taken;
  CHECK(what.alive);
  for (int i = 0; i < many; ++i) {
    // On a software CPU the first answers take their time.
    const auto end = box.events().wait_ended("never" + std::to_string(i), 60s);
    REQUIRE(end);
    REQUIRE(end->failed);
  }
  CHECK(box.sh("echo works").out == "works\n");
  box.stop();
}
