#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>

#include "node_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace base = dsec::base;
namespace fake = dsec::fake;
namespace backends = dsec::backends;

namespace {

void hold(dsec::proto::Exec::Builder e) {
  e.initArgv(1).set(0, "hold");
}

fake::script printing(std::string out, std::string err = {}) {
  return {.run =
              [=](const backends::exec_spec&) {
                fake::fate f;
                f.out = out;
                f.err = err;
                f.exit_code = 3;
                return f;
              },
          .on_step = {}};
}

long executions(const node_fixture& node, const std::string& id, const std::string& command_id) {
  const auto steps = node.backend->steps();
  return std::count(steps.begin(), steps.end(), "exec " + id + " " + command_id);
}

}  // namespace

TEST_CASE("exec answers with exit code and output") {
  node_fixture node(printing("hello\n", "oops\n"));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto a = alice.call(exec(id, "c1"));
  CHECK(a.kind == "command");
  CHECK(a.state == "ended");
  CHECK(a.exit_code == 3);
  CHECK(a.out == "hello\n");
  CHECK(a.err == "oops\n");
  CHECK(a.out_total == 6);
  CHECK(a.argv == std::vector<std::string>{"true"});
}

TEST_CASE("a command that could not start now is started by the same request sent again") {
  std::atomic<int> tries = 0;
  node_fixture node({.run =
                         [&](const backends::exec_spec&) {
                           fake::fate f;
                           if (tries++ == 0)
                             f.refused = base::error{base::errc::unavailable, "spawner died", 0};
                           f.exit_code = 4;
                           return f;
                         },
                     .on_step = {}});
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  CHECK(alice.call(exec(id, "c1")).code == "unavailable");
  const auto again = alice.call(exec(id, "c1"));
  CHECK(again.state == "ended");
  CHECK(again.exit_code == 4);
  CHECK(executions(node, id, "c1") == 2);
}

TEST_CASE("exec without wait answers when the command runs") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto a = alice.call(exec(id, "c1", [](auto e) {
    hold(e);
    e.setWait(false);
  }));
  CHECK(a.state == "running");
  CHECK(alice.call(get(id)).commands_running == 1);
}

TEST_CASE("a known command is never started again") {
  node_fixture node(printing("once"));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto first = alice.call(exec(id, "c1"));
  const auto again = alice.call(exec(id, "c1", [](auto e) {
    e.setShell("");
    e.initArgv(1).set(0, "other");
  }));
  CHECK(again.exit_code == first.exit_code);
  CHECK(again.out == "once");
  CHECK(executions(node, id, "c1") == 1);
}

TEST_CASE("a second exec of a running command waits for the first one's end") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto first = alice.ask(exec(id, "c1", hold));
  const auto second = alice.ask(exec(id, "c1", hold));
  CHECK_FALSE(alice.got(first));
  CHECK_FALSE(alice.got(second));
  node.backend->finish(id, "c1", {.refused = {}, .exit_code = 7, .out = "x", .err = {}});
  node.run();
  CHECK(alice.got(first)->exit_code == 7);
  CHECK(alice.got(second)->exit_code == 7);
  CHECK(executions(node, id, "c1") == 1);
}

TEST_CASE("a command that cannot be started is an error each time it is asked for") {
  node_fixture node({.run =
                         [](const backends::exec_spec&) {
                           fake::fate f;
                           f.refused = base::error{base::errc::exec_failed, "no such program", 0};
                           return f;
                         },
                     .on_step = {}});
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  CHECK(alice.call(exec(id, "c1")).code == "exec_failed");
  const auto again = alice.call(exec(id, "c1"));
  CHECK(again.code == "exec_failed");
  CHECK(again.object == "c1");
  CHECK(executions(node, id, "c1") == 1);
}

TEST_CASE("a command that the backend does not take leaves its id free") {
  bool refuse = true;
  node_fixture node(
      {.run = {}, .on_step = [&](std::string_view step, const std::string&) -> base::result<void> {
         if (step == "exec" && refuse) return base::fail(base::errc::capacity, "too many commands");
         return {};
       }});
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  CHECK(alice.call(exec(id, "c1")).code == "capacity");
  refuse = false;
  CHECK(alice.call(exec(id, "c1")).state == "ended");
}

TEST_CASE("an exec that waits too long is told so, and the command goes on") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto waiting = alice.ask(exec(id, "c1", hold), 2000);
  node.advance(2s);
  CHECK(alice.got(waiting)->code == "deadline_exceeded");
  CHECK(alice.call(get_command(id, "c1")).state == "running");
  node.backend->finish(id, "c1");
  node.run();
  CHECK(alice.call(get_command(id, "c1")).state == "ended");
}

TEST_CASE("get command waits as long as asked for, then tells the state") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.ask(exec(id, "c1", hold), 600'000);
  const auto poll = alice.ask(get_command(id, "c1", 1000), 60'000);
  node.advance(900ms);
  CHECK_FALSE(alice.got(poll));
  node.advance(200ms);
  CHECK(alice.got(poll)->state == "running");
  const auto other = alice.ask(get_command(id, "c1", 1000), 60'000);
  node.backend->finish(id, "c1", {.refused = {}, .exit_code = 5, .out = {}, .err = {}});
  node.run();
  CHECK(alice.got(other)->exit_code == 5);
  CHECK(alice.call(get_command(id, "nope")).code == "not_found");
}

TEST_CASE("kill answers when the command is dead") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto waiting = alice.ask(exec(id, "c1", hold));
  const auto a = alice.call(kill_command(id, "c1"));
  CHECK(a.state == "ended");
  CHECK(a.exit_code == 137);
  CHECK(alice.got(waiting)->exit_code == 137);
  CHECK(alice.call(kill_command(id, "c1")).state == "ended");
  CHECK(alice.call(kill_command(id, "c2")).code == "not_found");
}

TEST_CASE("a sandbox that dies answers whoever waits for its commands") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto waiting = alice.ask(exec(id, "c1", hold));
  // The channel closes without the command's end having been reported.
  node.kill->held = true;
  dsec::actors::ledger_ptr book = node.table->sandboxes.at(id).book;
  book->events.add(dsec::actors::instance_gone{base::cause::backend, "channel closed"});
  node.run();
  const auto a = alice.got(waiting);
  REQUIRE(a);
  CHECK(a->code == "sandbox_failed");
  CHECK(a->message.find("channel closed") != std::string::npos);
}

TEST_CASE("a client that goes leaves its command running") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.ask(exec(id, "c1", hold));
  alice.disconnect();
  client again(node, "alice");
  CHECK(again.call(get_command(id, "c1")).state == "running");
  node.backend->finish(id, "c1");
  node.run();
  CHECK(again.call(get_command(id, "c1")).state == "ended");
}

TEST_CASE("more output than asked for inline is cut at the front, and can be read on") {
  node_fixture node(printing("0123456789"));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto a = alice.call(exec(id, "c1", [](auto e) { e.setInlineLimit(4); }));
  CHECK(a.out == "0123");
  CHECK(a.out_total == 10);
  CHECK_FALSE(a.out_truncated);
  const auto rest = alice.call([&](auto r) {
    auto o = r.getBody().initReadOutput();
    o.setSandboxId(id.c_str());
    o.setCommandId("c1");
    o.setOffset(4);
    o.setLength(100);
  });
  CHECK(rest.out == "456789");
  CHECK(rest.total == 10);
  CHECK(rest.ended);
}

TEST_CASE("output over the cap keeps both ends and says what was dropped") {
  const auto text = std::string(4096, 'a') + std::string(4096, 'b') + std::string(4096, 'c');
  node_fixture node(printing(text));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto a = alice.call(exec(id, "c1", [](auto e) { e.setOutputLimit(8192); }));
  CHECK(a.out_truncated);
  CHECK(a.out_total == 12'288);
  CHECK(a.out == std::string(4096, 'a') + std::string(4096, 'c'));
}

TEST_CASE("large output is read on the pool and nothing else waits for it") {
  node_fixture node(printing(std::string(200'000, 'x')));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.copy->held = true;
  const auto large = alice.ask(exec(id, "c1"));
  CHECK_FALSE(alice.got(large));
  CHECK(alice.call(get(id)).phase == "running");
  node.copy->held = false;
  node.run();
  CHECK(alice.got(large)->out.size() == 200'000);
}

TEST_CASE("a full pool is an answer, not a wait") {
  node_fixture node(printing(std::string(200'000, 'x')));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.copy->full = true;
  CHECK(alice.call(exec(id, "c1")).code == "capacity");
  node.copy->full = false;
  CHECK(alice.call(exec(id, "c1")).out.size() == 200'000);
}

TEST_CASE("commands are listed in order, file operations are not") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  for (const auto* c : {"b", "a"}) alice.call(exec(id, c));
  alice.call([&](auto r) {
    auto w = r.getBody().initWriteFile();
    w.setSandboxId(id.c_str());
    w.setPath("/f");
  });
  const auto a =
      alice.call([&](auto r) { r.getBody().initListCommands().setSandboxId(id.c_str()); });
  CHECK(a.ids == std::vector<std::string>{"b", "a"});
}

TEST_CASE("a command that runs when its sandbox is stopped is lost, and whoever waits is told") {
  fake::script script = holding();
  script.run = [](const backends::exec_spec& spec) {
    fake::fate f;
    f.held = spec.argv.front() == "hold";
    f.out = "so far";
    return f;
  };
  node_fixture node(script);
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto run = alice.ask(exec(id, "c1", hold));
  const auto waiting = alice.ask(get_command(id, "c1", 50'000));
  CHECK(alice.call(get(id)).commands_running == 1);
  CHECK(alice.call(stop(id)).commands_running == 0);
  for (const auto& request : {run, waiting, alice.ask(get_command(id, "c1", 1)),
                              alice.ask(kill_command(id, "c1")), alice.ask(exec(id, "c1", hold))}) {
    REQUIRE(alice.got(request));
    CHECK(alice.got(request)->code == "sandbox_failed");
    CHECK(alice.got(request)->message.find("stopped (killed)") != std::string::npos);
  }
  CHECK(alice.call(get_command(id, "c1")).state == "lost");
  const auto read = [&](std::uint64_t offset) {
    return alice.call([=](auto r) {
      auto o = r.getBody().initReadOutput();
      o.setSandboxId(id.c_str());
      o.setCommandId("c1");
      o.setOffset(offset);
      o.setLength(100);
    });
  };
  CHECK(read(0).out == "so far");
  CHECK_FALSE(read(0).ended);
  CHECK(read(6).ended);
  CHECK(read(6).total == 6);
}

TEST_CASE("a command that runs when its sandbox dies is lost with the cause of its death") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto run = alice.ask(exec(id, "c1", hold));
  node.kill->held = true;  // it is not even removed yet
  node.backend->fail(id, base::cause::oom, "aether was killed");
  node.run();
  REQUIRE(alice.got(run));
  CHECK(alice.got(run)->code == "sandbox_failed");
  CHECK(alice.got(run)->message.find("oom") != std::string::npos);
  CHECK(alice.call(get(id)).commands_running == 0);
  node.kill->held = false;
  node.run();
}

TEST_CASE("what a lost command wrote is readable up to its spool's size") {
  node_fixture node({.run =
                         [](const backends::exec_spec&) {
                           fake::fate f;
                           f.held = true;
                           f.out = std::string(3000, 'a') + std::string(1500, 'b');
                           f.err = std::string(3000, 'c');
                           return f;
                         },
                     .on_step = {}});
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "c1", [](auto e) {
    e.setWait(false);
    e.setOutputLimit(4096);
  }));
  alice.call(stop(id));
  const auto read = [&](bool err) {
    return alice.call([=](auto r) {
      auto o = r.getBody().initReadOutput();
      o.setSandboxId(id.c_str());
      o.setCommandId("c1");
      o.setStderr(err);
      o.setLength(100'000);
    });
  };
  CHECK(read(true).out == std::string(3000, 'c'));
  CHECK(read(false).out == std::string(2048, 'a'));  // behind it the ring has turned
}

TEST_CASE("large input is written on a pool, and a kill meanwhile is not lost") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto with_input = [](auto e) {
    hold(e);
    e.initStdin(100'000);
  };
  node.copy->held = true;
  const auto run = alice.ask(exec(id, "c1", with_input));
  CHECK(executions(node, id, "c1") == 0);
  const auto killed = alice.ask(kill_command(id, "c1"));
  CHECK_FALSE(alice.got(killed));
  node.copy->held = false;
  node.run();
  CHECK(executions(node, id, "c1") == 1);
  CHECK(alice.got(run)->exit_code == 137);
  CHECK(alice.got(killed)->exit_code == 137);
}

TEST_CASE("a command whose large input finds the sandbox gone is told so") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.copy->held = true;
  const auto run = alice.ask(exec(id, "c1", [](auto e) { e.initStdin(100'000); }));
  alice.call(stop(id));
  node.copy->held = false;
  node.run();
  CHECK(alice.got(run)->code == "sandbox_failed");
}

TEST_CASE("who may try again is told when the command's id is free, not before") {
  node_fixture node({.run =
                         [n = 0](const backends::exec_spec&) mutable {
                           fake::fate f;
                           if (n++ == 0)
                             f.refused = base::error{base::errc::unavailable, "later", 0};
                           return f;
                         },
                     .on_step = {}});
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.background->held = true;  // what clients do not wait for may take its time
  node.copy->held = true;
  const auto first = alice.ask(exec(id, "c1"));
  CHECK_FALSE(alice.got(first));
  node.copy->held = false;
  node.run();
  CHECK(alice.got(first)->code == "unavailable");
  CHECK(alice.call(exec(id, "c1")).state == "ended");
}
