// Commands and file operations over a node's death: none runs twice, none is lost.
#include <algorithm>
#include <catch2/catch.hpp>

#include "node_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace actors = dsec::actors;
namespace base = dsec::base;
namespace backends = dsec::backends;
namespace fake = dsec::fake;

namespace {

long count(const node_fixture& node, const std::string& step) {
  const auto steps = node.backend->steps();
  return std::count(steps.begin(), steps.end(), step);
}

void hold(dsec::proto::Exec::Builder e) {
  e.initArgv(1).set(0, "hold");
}

void hold_in_background(dsec::proto::Exec::Builder e) {
  hold(e);
  e.setWait(false);
}

fake::fate exit_with(int code, std::string out = {}) {
  fake::fate f;
  f.exit_code = code;
  f.out = std::move(out);
  return f;
}

/// A node with one running sandbox that is in the store.
struct with_sandbox {
  explicit with_sandbox(fake::script s = holding()) : node(std::move(s)) {
    id = node.running_sandbox(alice);
    node.write_records();
  }
  void restart() {
    node.restart();
    alice.reconnect();
  }

  node_fixture node;
  client alice{node, "alice"};
  std::string id;
};

}  // namespace

TEST_CASE("a command that runs while the node dies is waited for at the next one") {
  with_sandbox s;
  s.alice.call(exec(s.id, "c1", hold_in_background));
  s.restart();
  CHECK(s.alice.call(get_command(s.id, "c1")).state == "running");
  CHECK(s.alice.call(get(s.id)).commands_running == 1);
  const auto again = s.alice.ask(exec(s.id, "c1", hold));
  CHECK_FALSE(s.alice.got(again));
  s.node.backend->finish(s.id, "c1", exit_with(7, "out"));
  s.node.run();
  CHECK(s.alice.got(again)->exit_code == 7);
  CHECK(s.alice.got(again)->out == "out");
  CHECK(count(s.node, "exec " + s.id + " c1") == 1);
}

TEST_CASE("a command that ends while no node is there has its result at the next one") {
  with_sandbox s;
  s.alice.ask(exec(s.id, "c1", hold));
  s.node.kill9();
  s.node.backend->finish(s.id, "c1", exit_with(7, "out"));
  const bool late = GENERATE(false, true);
  s.node.backend->host()->hold_news(late);
  s.node.start_again();
  s.alice.reconnect();
  if (late) {
    CHECK(s.alice.call(get_command(s.id, "c1")).state == "running");
    s.node.backend->host()->release_news();
    s.node.run();
  }
  CHECK(s.alice.call(exec(s.id, "c1", hold)).exit_code == 7);
  CHECK(s.alice.call(read_output(s.id, "c1")).out == "out");
  CHECK(count(s.node, "exec " + s.id + " c1") == 1);
}

TEST_CASE("an end that was written down but not taken in is not lost") {
  with_sandbox s;
  s.alice.ask(exec(s.id, "c1", hold));
  s.node.backend->finish(s.id, "c1", exit_with(7));  // in the inbox, and the actor dies
  s.restart();
  CHECK(s.alice.call(exec(s.id, "c1", hold)).exit_code == 7);
}

TEST_CASE("results of ended commands are there after any number of restarts") {
  with_sandbox s({.run = [](const backends::exec_spec& spec) {
    return exit_with(static_cast<int>(spec.id.size()), spec.id + "!");
  }});
  for (const auto* id : {"a", "bb", "ccc"}) s.alice.call(exec(s.id, id));
  for (int i = 0; i < 3; ++i) {
    s.restart();
    CHECK(s.alice.call(list_commands(s.id)).ids == std::vector<std::string>{"a", "bb", "ccc"});
    CHECK(s.alice.call(get_command(s.id, "bb")).exit_code == 2);
    CHECK(s.alice.call(exec(s.id, "ccc")).out == "ccc!");
    CHECK(s.alice.call(read_output(s.id, "a")).out == "a!");
  }
  CHECK(count(s.node, "exec " + s.id + " a") == 1);
}

TEST_CASE("an exec that was lost on its way inside is told so, and runs when it is sent again") {
  bool lossy = true;
  with_sandbox s({.run = [&](const backends::exec_spec&) {
    fake::fate f;
    f.never_arrives = lossy;
    return f;
  }});
  s.alice.ask(exec(s.id, "c1"));
  s.node.backend->host()->hold_news(true);
  s.restart();
  lossy = false;
  // Nobody knows yet whether it arrived: whoever sends it again waits for that.
  const auto early = s.alice.ask(exec(s.id, "c1"));
  CHECK_FALSE(s.alice.got(early));
  s.node.backend->host()->release_news();
  s.node.run();
  CHECK(s.alice.got(early)->code == "unavailable");
  CHECK(s.alice.got(early)->retryable);
  CHECK(s.alice.call(exec(s.id, "c1")).state == "ended");
  CHECK(count(s.node, "exec " + s.id + " c1") == 1);
}

TEST_CASE("a command that could not be started for now is free again, also across the death") {
  bool full = true;
  with_sandbox s({.run = [&](const backends::exec_spec&) {
    fake::fate f;
    if (full) f.refused = base::error{base::errc::capacity, "too many processes", 0};
    return f;
  }});
  s.node.copy->held = true;  // where its id would be made free
  s.alice.ask(exec(s.id, "c1"));
  s.restart();
  full = false;
  CHECK(s.alice.call(exec(s.id, "c1")).state == "ended");
}

TEST_CASE("a command that was refused for good stays refused") {
  with_sandbox s({.run = [&](const backends::exec_spec&) {
    fake::fate f;
    f.refused = base::error{base::errc::exec_failed, "no such program", 0};
    return f;
  }});
  CHECK(s.alice.call(exec(s.id, "c1")).code == "exec_failed");
  s.restart();
  CHECK(s.alice.call(exec(s.id, "c1")).code == "exec_failed");
  CHECK(count(s.node, "exec " + s.id + " c1") == 1);
}

TEST_CASE("commands that ran when the sandbox died without a node are lost, their output is not") {
  with_sandbox s;
  s.alice.call(exec(s.id, "c1", hold_in_background));
  s.node.kill9();
  s.node.backend->host()->lose(s.id);
  s.node.start_again();
  s.alice.reconnect();
  CHECK(s.alice.call(get_command(s.id, "c1")).state == "lost");
  CHECK(s.alice.call(exec(s.id, "c1", hold)).code == "sandbox_failed");
  CHECK(s.alice.call(read_output(s.id, "c1")).kind == "output");
  CHECK(s.alice.call(get(s.id)).commands_running == 0);
}

TEST_CASE("a command can be killed by the next node") {
  with_sandbox s;
  s.alice.call(exec(s.id, "c1", hold_in_background));
  s.restart();
  CHECK(s.alice.call(kill_command(s.id, "c1")).exit_code == 137);
}

TEST_CASE("a running command keeps its sandbox from being idle at the next node") {
  with_sandbox s;
  const auto idle =
      s.node.running_sandbox(s.alice, create([](auto c) { c.setIdleTtlSeconds(10); }));
  s.alice.call(exec(idle, "c1", hold_in_background));
  s.node.write_records();
  s.restart();
  s.node.advance(1min, 1s);
  CHECK(s.alice.call(get(idle)).phase == "running");
}

TEST_CASE("an id whose result is no longer kept is not run again, by any later node") {
  with_sandbox s;
  const auto many = actors::command_table::max_results + actors::command_table::evict_batch;
  for (std::size_t i = 0; i < many; ++i) s.alice.call(exec(s.id, "c" + std::to_string(i)));
  CHECK(s.alice.call(exec(s.id, "c0")).code == "not_found");
  s.restart();
  const auto a = s.alice.call(exec(s.id, "c0"));
  CHECK(a.code == "not_found");
  CHECK(a.message.find("long ago") != std::string::npos);
  CHECK(count(s.node, "exec " + s.id + " c0") == 1);
  CHECK(s.alice.call(get_command(s.id, "c" + std::to_string(many - 1))).state == "ended");
}

TEST_CASE("a write with an id is done once, however often the node dies") {
  with_sandbox s;
  CHECK(s.alice.call(write_file(s.id, "/f", "12345", "w1")).size == 5);
  const auto step = "exec " + s.id + " dsec.w.w1";
  s.restart();
  CHECK(s.alice.call(write_file(s.id, "/f", "other", "w1")).size == 5);
  s.restart();
  CHECK(s.alice.call(write_file(s.id, "/f", "12345", "w1")).size == 5);
  CHECK(count(s.node, step) == 1);
  CHECK(s.alice.call(read_file(s.id, "/f")).out == "12345");
}

TEST_CASE("what a write that ended well has left is dropped by the next node, if not by its own") {
  with_sandbox s;
  s.node.background->held = true;  // where it would be dropped
  CHECK(s.alice.call(write_file(s.id, "/f", "12345", "w1")).size == 5);
  s.restart();
  CHECK(count(s.node, "forget " + s.id + " dsec.w.w1") == 1);
  CHECK(s.alice.call(write_file(s.id, "/f", "12345", "w1")).size == 5);
}

TEST_CASE("a write whose end the node did not take in is answered by the next") {
  bool slow = true;
  fake::script script;
  script.write = [&](const backends::exec_spec&) {
    fake::fate f;
    f.held = slow;
    return f;
  };
  with_sandbox s(script);
  s.alice.ask(write_file(s.id, "/f", "12345", "w1"));
  s.node.kill9();
  SECTION("it ended meanwhile") {
    s.node.backend->finish(s.id, "dsec.w.w1",
                           {.refused = {}, .out = {}, .err = std::string("\5\0\0\0\0\0\0\0", 8)});
    s.node.start_again();
    s.alice.reconnect();
    CHECK(s.alice.call(write_file(s.id, "/f", "12345", "w1")).size == 5);
  }
  SECTION("it ends later") {
    s.node.start_again();
    s.alice.reconnect();
    const auto again = s.alice.ask(write_file(s.id, "/f", "12345", "w1"));
    CHECK_FALSE(s.alice.got(again));
    s.node.backend->finish(s.id, "dsec.w.w1",
                           {.refused = {}, .out = {}, .err = std::string("\5\0\0\0\0\0\0\0", 8)});
    s.node.run();
    CHECK(s.alice.got(again)->size == 5);
  }
  CHECK(count(s.node, "exec " + s.id + " dsec.w.w1") == 1);
}

TEST_CASE("a write that failed for now is done when it is sent again to the next node") {
  int failure = ENOSPC;
  fake::script script;
  script.write = [&](const backends::exec_spec&) { return exit_with(failure); };
  with_sandbox s(script);
  s.node.copy->held = true;  // where its id would be made free
  s.alice.ask(write_file(s.id, "/f", "12345", "w1"));
  s.restart();
  failure = 0;
  CHECK(s.alice.call(write_file(s.id, "/f", "12345", "w1")).size == 5);
}

TEST_CASE("a write that failed for good has failed at every later node too") {
  fake::script script;
  int failure = EACCES;
  script.write = [&](const backends::exec_spec& spec) {
    fake::fate f = exit_with(failure);
    if (spec.argv.at(0) == "/none")
      f.refused = base::error{base::errc::not_found, "cannot write '/none': No such file", 0};
    return f;
  };
  with_sandbox s(script);
  CHECK(s.alice.call(write_file(s.id, "/f", "1", "w1")).code == "permission_denied");
  CHECK(s.alice.call(write_file(s.id, "/none", "1", "w2")).code == "not_found");
  failure = 0;
  for (int i = 0; i < 2; ++i) {
    s.restart();
    CHECK(s.alice.call(write_file(s.id, "/f", "1", "w1")).code == "permission_denied");
    CHECK(s.alice.call(write_file(s.id, "/none", "1", "w2")).code == "not_found");
  }
  CHECK(count(s.node, "exec " + s.id + " dsec.w.w1") == 1);
  // They are not kept for ever.
  for (std::size_t i = 0; i <= actors::write_log::most; ++i)
    s.alice.call(write_file(s.id, "/f", "1", "x" + std::to_string(i)));
  CHECK(count(s.node, "forget " + s.id + " dsec.w.w1") == 1);
}

TEST_CASE("ids of file operations of one node do not come again in the next") {
  with_sandbox s;
  s.alice.call(write_file(s.id, "/f", "1"));
  const auto used = s.node.backend->steps();
  s.restart();
  s.alice.call(write_file(s.id, "/f", "2"));
  CHECK(s.alice.call(read_file(s.id, "/f")).out == "2");
  const auto all = s.node.backend->steps();
  for (auto i = used.size(); i < all.size(); ++i) {
    if (!all[i].starts_with("exec ")) continue;
    CHECK(std::find(used.begin(), used.end(), all[i]) == used.end());
  }
}

TEST_CASE("a file operation under way when the node dies is nobody's any more, and is dropped") {
  bool slow = true;
  fake::script script;
  script.write = [&](const backends::exec_spec&) {
    fake::fate f;
    f.held = slow;
    return f;
  };
  with_sandbox s(script);
  s.alice.ask(write_file(s.id, "/f", "1"));
  const auto steps = s.node.backend->steps();
  const auto op = steps.back().substr(steps.back().rfind(' ') + 1);
  s.restart();
  CHECK(s.alice.call(list_commands(s.id)).ids.empty());
  s.node.backend->finish(s.id, op);
  s.node.run();
  CHECK(count(s.node, "forget " + s.id + " " + op) == 1);
}
