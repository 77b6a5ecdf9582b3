// What the next container backend finds of the sandboxes of one that was killed or has left. Needs
// root.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "backends/container/command_log.hpp"
#include "backends/container/launcher_process.hpp"
#include "base/ids.hpp"
#include "container_rig.hpp"

using namespace dsec;
using namespace dsec::test;
using base::errc;

namespace {

using backends::known_command;

std::vector<container_box> one(container_box box) {
  std::vector<container_box> kept;
  kept.push_back(std::move(box));
  return kept;
}

const known_command& command(const backends::recovered& r, const std::string& id) {
  const auto found =
      std::find_if(r.commands.begin(), r.commands.end(), [&](const auto& c) { return c.id == id; });
  REQUIRE(found != r.commands.end());
  return *found;
}

bool knows(const backends::recovered& r, const std::string& id) {
  return std::any_of(r.commands.begin(), r.commands.end(),
                     [&](const auto& c) { return c.id == id; });
}

bool is_used_up(const backends::recovered& r, const std::string& id) {
  return std::count(r.used_up.begin(), r.used_up.end(), base::id_hash(id)) == 1;
}

backends::exec_spec with_id(backends::exec_spec spec, const std::string& id) {
  spec.id = id;
  return spec;
}

backends::exec_spec write_of(const std::string& id, const std::string& path) {
  backends::exec_spec spec;
  spec.id = id;
  spec.kind = backends::exec_kind::write_file;
  spec.argv = {path};
  spec.stdin_data = "0123456789";
  return spec;
}

void kill_process(pid_t pid) {
  REQUIRE(::kill(pid, SIGKILL) == 0);
}

pid_t aether_of(const container_rig& rig) {
  const auto all = rig.inhabitants();
  REQUIRE_FALSE(all.empty());
  return *std::min_element(all.begin(), all.end());
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
  earlier_daemon before([&] {
    rig.open();
    auto box = rig.start("kept");
    box.begin(with_id(shell("seq 1 50000; while ! test -e /go; do sleep 0.01; done; "
                            "seq 50001 100000; exit 7"),
                      "long"));
    return one(std::move(box));
  });
  before.kill();
  rig.open_only();
  auto [box, what] = rig.recover("kept");
  rig.end_unrecovered();
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
  earlier_daemon before([&] {
    rig.open();
    auto box = rig.start("kept");
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
    return one(std::move(box));
  });
  before.kill();
  rig.open_only();
  auto [box, what] = rig.recover("kept");
  rig.end_unrecovered();

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
  earlier_daemon before([&] {
    rig.open();
    return one(rig.start("kept"));
  });
  before.kill();
  const auto spools = rig.scope().state / "sandboxes/kept/spool";
  container::begun_record never;
  never.id = "never";
  never.argv = {"/bin/echo"};
  never.spool_cap = never.output_cap = 4096;
  REQUIRE(container::command_log(spools).begin(never));
  std::ofstream(spools / "never.out");
  std::ofstream(spools / "dsec.file3.out") << "of no command";
  rig.open_only();
  auto [box, what] = rig.recover("kept");
  rig.end_unrecovered();
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

TEST_CASE("a sandbox that died while no daemon was there is told as dead, its results can be read",
          "[kernel][container][recovery]") {
  container_rig rig({0, 1}, false);
  earlier_daemon before([&] {
    rig.open();
    auto box = rig.start("dead");
    box.run(with_id(shell("echo last words"), "said"));
    box.begin(with_id(shell("echo half; sleep 1000"), "cut"));
    REQUIRE(eventually([&] {
      return box->read_output("cut", backends::stream::out, 0, 10, std::nullopt)->data == "half\n";
    }));
    return one(std::move(box));
  });
  before.kill();
  const bool at_once = GENERATE(false, true);
  kill_process(aether_of(rig));
  if (!at_once) REQUIRE(eventually([&] { return rig.inhabitants().empty(); }));
  rig.open_only();
  auto [box, what] = rig.recover("dead");
  if (what.alive) {  // it took its time: then its death is an event
    CHECK(box.events().wait_gone(10s));
    box.stop();
    rig.end_unrecovered();
  } else {
    CHECK(what.died_of == base::cause::backend);
    CHECK(what.detail.find("its aether has ended") == 0);
    CHECK(box->exec(with_id(shell("true"), "x")).error().code == errc::wrong_phase);
    CHECK(box->usage().error().code == errc::wrong_phase);
    CHECK(box->stop());
    rig.end_unrecovered();
    CHECK(box->stop());
  }
  CHECK(std::holds_alternative<known_command::pending>(command(what, "cut").end));
  CHECK(box->read_output("said", backends::stream::out, 0, 20, 11)->data == "last words\n");
  CHECK(box->read_output("cut", backends::stream::out, 0, 20, std::nullopt)->data == "half\n");
  box->forget("said");
  CHECK(box->read_output("said", backends::stream::out, 0, 1, 11).error().code == errc::not_found);
  auto next = rig.start("next");  // in the only slot
  CHECK(next.sh("echo works").out == "works\n");
  next.stop();
}

TEST_CASE("when daemon and launcher are both killed nothing is left, and that is said",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before([&] {
    rig.open();
    auto box = rig.start("lost");
    box.run(with_id(shell("echo last words"), "said"));
    box.begin_sh("setsid sleep 1000 & exec sleep 1000");
    return one(std::move(box));
  });
  const auto launcher = rig.launcher_pid();
  REQUIRE(launcher);
  before.kill();
  kill_process(*launcher);
  CHECK(eventually([&] { return rig.inhabitants().empty(); }, 2s));  // aether saw to it
  rig.open_only();
  auto [box, what] = rig.recover("lost");
  CHECK_FALSE(what.alive);
  CHECK(what.died_of == base::cause::lost);
  CHECK(box->read_output("said", backends::stream::out, 0, 20, 11)->data == "last words\n");
  CHECK(rig.backend().recover(container_rig::spec("never-was"), {}).error().code ==
        errc::not_found);
  CHECK(rig.try_start(container_rig::spec("early")).error().code == errc::wrong_phase);
  rig.end_unrecovered();
  CHECK_FALSE(std::filesystem::exists(rig.scope().state / "sandboxes/lost/upper"));
  auto next = rig.start("next");
  CHECK(next.sh("echo works").out == "works\n");
  next.stop();
}

TEST_CASE("what was taken over outlives the launcher, before and after it is taken over",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before([&] {
    rig.open();
    auto kept = one(rig.start("first"));
    kept.push_back(rig.start("second"));
    for (auto& box : kept) box.begin(with_id(shell("sleep 1000"), "sleeper"));
    return kept;
  });
  before.kill();
  rig.open_only();
  const auto replaced = [&](pid_t old) {
    kill_process(old);
    REQUIRE(eventually([&] { return rig.launcher_pid() && rig.launcher_pid() != old; }));
    return *rig.launcher_pid();
  };
  auto [first, one_of_two] = rig.recover("first");
  REQUIRE(one_of_two.alive);
  const auto second_launcher = replaced(*rig.launcher_pid());
  auto [second, other_of_two] = rig.recover("second");
  REQUIRE(other_of_two.alive);
  rig.end_unrecovered();
  replaced(second_launcher);
  auto third = rig.start("third");  // waits until the new launcher works
  CHECK(first.sh("echo one").out == "one\n");
  CHECK(second.sh("echo two").out == "two\n");

  // The launcher that has adopted them tells the next daemon of them as well.
  rig.backend().leave();
  { const auto gone = std::move(first), also = std::move(second), last = std::move(third); }
  rig.leave();
  rig.open_only();
  for (const auto* id : {"first", "second", "third"}) {
    auto [box, what] = rig.recover(id);
    REQUIRE(what.alive);
    CHECK(box.sh("echo still").out == "still\n");
    if (id != std::string("third")) {
      REQUIRE(box->kill("sleeper"));
      CHECK(box.wait("sleeper").exited->killed);
    }
    box.stop();
  }
  rig.end_unrecovered();
  CHECK(rig.inhabitants().empty());
}

TEST_CASE("a backend that leaves leaves everything running, and the next one goes on",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64});
  const auto launcher = rig.launcher_pid();
  {
    auto box = rig.start("kept");
    box.begin(with_id(shell("while ! test -e /go; do sleep 0.01; done; echo gone"), "long"));
    rig.backend().leave();
    CHECK(rig.try_start(container_rig::spec("late")).error().code == errc::unavailable);
  }
  rig.leave();
  CHECK(rig.launcher_pid() == launcher);
  CHECK(rig.inhabitants().size() >= 3);
  rig.open_only();
  CHECK(rig.launcher_pid() == launcher);
  auto [box, what] = rig.recover("kept");
  REQUIRE(what.alive);
  rig.end_unrecovered();
  CHECK(rig.backend().recover(container_rig::spec("kept"), {}).error().code ==
        errc::already_exists);
  CHECK(box.sh("touch /go; echo ok").out == "ok\n");
  CHECK(box.wait("long").out == "gone\n");
  auto beside = rig.start("beside");
  CHECK(beside.sh("hostname").out == "beside\n");
  beside.stop();
  box.stop();
}

TEST_CASE("a backend that ends before it has settled what it found leaves it",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before([&] {
    rig.open();
    return one(rig.start("kept"));
  });
  before.kill();
  rig.open_only();
  CHECK(rig.backend().close());  // as when the host turns out to lack something
  rig.open_only();
  auto [box, what] = rig.recover("kept");
  REQUIRE(what.alive);
  rig.end_unrecovered();
  CHECK(box.sh("echo here").out == "here\n");
  box.stop();
}

TEST_CASE("a sandbox that was taken over and then dies is gone, once",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before([&] {
    rig.open();
    return one(rig.start("victim"));
  });
  before.kill();
  rig.open_only();
  auto [box, what] = rig.recover("victim");
  rig.end_unrecovered();
  const auto running = box.begin_sh("sleep 1000");
  kill_process(aether_of(rig));
  const auto gone = box.events().wait_gone(10s);
  REQUIRE(gone);
  CHECK(gone->first == base::cause::backend);
  box.stop();
  CHECK(box.events().times_gone() == 1);
  CHECK_FALSE(box.events().wait_ended(running, 0ms));
}

TEST_CASE("of two launchers the one that answers is taken over, the other is ended",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before([&] {
    rig.open();
    auto box = rig.start("hidden");
    auto second = container::launcher_process::start(base::paths(rig.scope().state), -1);
    REQUIRE(second);
    second->leave();
    return one(std::move(box));
  });
  before.kill();
  rig.open_only();
  auto [box, what] = rig.recover("hidden");
  CHECK_FALSE(what.alive);
  CHECK(what.died_of == base::cause::lost);
  rig.end_unrecovered();
  CHECK(rig.inhabitants().empty());
  auto next = rig.start("next");
  CHECK(next.sh("echo works").out == "works\n");
  next.stop();
}

TEST_CASE("a daemon with too few descriptors to take over takes nothing and ends nothing",
          "[kernel][container][recovery]") {
  container_rig rig({0, 64}, false);
  earlier_daemon before([&] {
    rig.open();
    std::vector<container_box> kept;
    for (int i = 0; i < 20; ++i) kept.push_back(rig.start("n" + std::to_string(i)));
    return kept;
  });
  before.kill();
  const auto in_use = open_descriptors().size();
  rlimit all{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &all) == 0);
  const rlimit few{in_use + 30, all.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  const auto failed =
      container::container_backend::open(base::paths(rig.scope().state), rig.node(), {});
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &all) == 0);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message.find("open files") != std::string::npos);
  rig.open_only();
  for (int i = 0; i < 20; ++i) {
    auto [box, what] = rig.recover("n" + std::to_string(i));
    CHECK(what.alive);
    box.stop();
  }
  rig.end_unrecovered();
}

TEST_CASE("sandboxes that live forbid other user ids, which might be theirs",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64});
  {
    auto box = rig.start("kept");
    rig.backend().leave();
  }
  rig.leave();
  auto node = rig.node();
  node.uid_base += 65536;
  const auto refused = container::container_backend::open(base::paths(rig.scope().state), node, {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::conflict);
  CHECK(refused.error().message.find("node.uid_base") != std::string::npos);
  rig.open_only();
  auto [box, what] = rig.recover("kept");
  REQUIRE(what.alive);
  box.stop();
  rig.end_unrecovered();
}

TEST_CASE("a stream loses no byte over ten kills of the daemon", "[kernel][container][recovery]") {
  constexpr int last = 3'000'000;
  container_rig rig({0, 64}, false);
  earlier_daemon first([&] {
    rig.open();
    auto box = rig.start("stream");
    box.begin(
        with_id(shell("for i in $(seq 0 299); do seq $((i * 10000 + 1)) $((i * 10000 + 10000));"
                      " sleep 0.01; done"),
                "numbers"));
    return one(std::move(box));
  });
  first.kill();
  for (int i = 0; i < 9; ++i) {
    earlier_daemon next([&] {
      rig.open_only();
      auto taken = rig.recover("stream");
      rig.end_unrecovered();
      taken.box.sh("true");
      return one(std::move(taken.box));
    });
    next.kill();
  }
  rig.open_only();
  auto [box, what] = rig.recover("stream");
  rig.end_unrecovered();
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
