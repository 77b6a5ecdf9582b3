#include <caf/scoped_actor.hpp>
#include <catch2/catch.hpp>

#include "actors/terminator.hpp"
#include "node_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace actors = dsec::actors;

namespace {

/// Asks for a shutdown; `done` becomes true when it is answered.
struct shutdown {
  explicit shutdown(node_fixture& n) : node(n), self(*n.system, true) {
    terminator = node.system->spawn(actors::terminator, node.root);
    handle.emplace(self->request(terminator, caf::infinite, actors::shut_down{}));
    node.run();
  }
  ~shutdown() {
    caf::anon_send_exit(terminator, caf::exit_reason::user_shutdown);
    node.run();
  }
  bool done() {
    bool answered = false;
    if (self->has_next_message()) {
      handle->receive([&](actors::shut_down_done) { answered = true; }, [](caf::error&) {});
    }
    return answered;
  }

  node_fixture& node;
  caf::scoped_actor self;
  actors::terminator_actor terminator;
  using handle_type = decltype(std::declval<caf::scoped_actor&>()->request(
      actors::terminator_actor{}, caf::infinite, actors::shut_down{}));
  std::optional<handle_type> handle;
};

}  // namespace

TEST_CASE("shutting down stops every sandbox, answers and closes every connection") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.running_sandbox(alice);
  const auto waiting = alice.ask(exec(id, "c1", [](auto e) { e.initArgv(1).set(0, "hold"); }));
  shutdown s(node);
  CHECK(node.backend->live() == 0);
  CHECK(alice.got(waiting));
  CHECK(alice.session->left == std::vector<std::string>{"dsecd is stopping"});  // close code 1001
  alice.disconnect();  // the socket side says so when it is closed
  CHECK(s.done());
}

TEST_CASE("shutting down waits for the last sandbox to be gone") {
  node_fixture node;
  client alice(node, "alice");
  node.running_sandbox(alice);
  node.kill->held = true;
  shutdown s(node);
  alice.disconnect();
  CHECK_FALSE(s.done());
  node.kill->held = false;
  node.run();
  CHECK(s.done());
}

TEST_CASE("while it shuts down a node takes no creates, and tells waiting ones") {
  node_fixture node;
  client alice(node, "alice");
  node.running_sandbox(alice);
  node.copy->held = true;
  const auto waiting = alice.ask(create());
  node.kill->held = true;
  shutdown s(node);
  CHECK(alice.got(waiting)->code == "unavailable");
  CHECK(alice.call(create()).code == "unavailable");
  CHECK_FALSE(node.worker->health->readyz().good);
  node.kill->held = node.copy->held = false;
  node.run();
}

TEST_CASE("shutting down while a sandbox starts ends it") {
  node_fixture node;
  client alice(node, "alice");
  node.start->held = true;
  const auto created = alice.ask(create());
  shutdown s(node);
  CHECK(alice.got(created)->code == "cancelled");
  node.start->held = false;
  node.run();
  alice.disconnect();
  CHECK(s.done());
  CHECK(node.backend->live() == 0);
}

TEST_CASE("an idle node shuts down at once") {
  node_fixture node;
  shutdown s(node);
  CHECK(s.done());
}
