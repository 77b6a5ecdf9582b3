// What a node tells about itself: events, usage, its load, and what it counts.
#include "reports.hpp"

#include <caf/scoped_actor.hpp>
#include <catch2/catch.hpp>

using namespace dsec;
using namespace dsec::test;
using namespace std::chrono_literals;

namespace {

using names = std::vector<std::string>;

}  // namespace

TEST_CASE("the life of a sandbox and its commands is told in order, each with its trace") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto made = alice.call(traced(create(), "the-create"));
  alice.call(traced(exec(made.sandbox_id, "c", [](auto e) { e.setWait(true); }), "the-exec"));
  alice.call(stop(made.sandbox_id));
  const auto told = events_of(alice, alice.ask(list_events()));
  REQUIRE(told);
  CHECK(told->kinds == names{"sandbox.created", "sandbox.running", "command.started",
                             "command.ended", "sandbox.stopped"});
  CHECK(told->traces == names{"the-create", "the-create", "the-exec", "the-exec", "the-create"});
  CHECK(told->causes == names{"", "", "", "exit", "killed"});
  CHECK(told->sandboxes == names(5, made.sandbox_id));
  CHECK(told->edges == names(5, "e0"));
  const auto of_exec =
      events_of(alice, alice.ask(list_events({}, 0, [](auto e) { e.setTraceId("the-exec"); })));
  CHECK(of_exec->kinds == names{"command.started", "command.ended"});
}

TEST_CASE("nobody sees events of another's sandboxes") {
  node_fixture node;
  client alice(node, "alice"), bob(node, "bob");
  node.running_sandbox(alice);
  const auto told = events_of(bob, bob.ask(list_events()));
  CHECK(told->kinds.empty());
  CHECK(told->cursor == "e0:" + node.worker->epoch + ":2");
}

TEST_CASE("who waits for events is answered when there is one, or when the time is over") {
  node_fixture node;
  client alice(node, "alice"), bob(node, "bob");
  const auto first = alice.ask(list_events({}, 10'000));
  const auto others = bob.ask(list_events({}, 10'000));
  CHECK_FALSE(events_of(alice, first));
  node.running_sandbox(alice);
  REQUIRE(events_of(alice, first));
  CHECK(events_of(alice, first)->kinds.front() == "sandbox.created");
  CHECK_FALSE(events_of(bob, others));
  node.advance(9s);
  CHECK_FALSE(events_of(bob, others));
  node.advance(2s);
  REQUIRE(events_of(bob, others));
  CHECK(events_of(bob, others)->kinds.empty());
}

TEST_CASE("a reader goes on after its cursor; that of an earlier process means nothing") {
  node_fixture node;
  client alice(node, "alice");
  const auto nothing = events_of(alice, alice.ask(list_events()));
  node.running_sandbox(alice);
  const auto first =
      events_of(alice, alice.ask(list_events(nothing->cursor, 0, [](auto e) { e.setLimit(1); })));
  CHECK(first->kinds == names{"sandbox.created"});
  const auto rest = events_of(alice, alice.ask(list_events(first->cursor)));
  CHECK(rest->kinds == names{"sandbox.running"});
  CHECK(events_of(alice, alice.ask(list_events(rest->cursor)))->kinds.empty());
  CHECK(events_of(alice, alice.ask(list_events("e0:another:2")))->kinds.size() == 2);
  CHECK(events_of(alice, alice.ask(list_events("e1:" + node.worker->epoch + ":2")))->kinds.size() ==
        2);
}

TEST_CASE("a cursor that is none is refused") {
  node_fixture node;
  client alice(node, "alice");
  for (const auto* text : {"2", "e0:x", "e0:x:", "e0:x:-1", "e0::1", "E0:x:1", ":x:1", "e0:x:1;"})
    CHECK(alice.call(list_events(text)).code == "invalid_argument");
}

TEST_CASE("a page of events is a small reply, and the next one goes on behind it") {
  node_fixture node;
  client alice(node, "alice");
  for (int i = 0; i < 1000; ++i) {
    node.worker->events->add(
        {.kind = actors::event_kind::node_unhealthy, .detail = std::string(200, 'x')});
  }
  std::size_t seen = 0, pages = 0;
  for (std::string after;; ++pages) {
    const auto page = events_of(alice, alice.ask(list_events(after)));
    CHECK(alice.session->sent.back().bytes().size() < 64U << 10U);
    if (page->kinds.empty()) break;
    seen += page->kinds.size();
    after = page->cursor;
  }
  CHECK(seen == 1000);
  CHECK(pages > 4);
}

TEST_CASE("events outlive the edge, and whoever waits at it is told to ask again") {
  node_fixture node;
  client alice(node, "alice");
  node.running_sandbox(alice);
  const auto waiting = alice.ask(list_events("e0:" + node.worker->epoch + ":2", 10'000));
  {
    caf::scoped_actor self{*node.system, true};
    auto handle = self->request(node.root, caf::infinite, actors::get_roots{});
    node.run();
    handle.receive(
        [](const actors::roots& r) { caf::anon_send_exit(r.edge, caf::exit_reason::kill); },
        [](caf::error&) {});
  }
  node.run();
  CHECK(alice.got(waiting)->code == "unavailable");
  CHECK(events_of(alice, alice.ask(list_events()))->kinds ==
        names{"sandbox.created", "sandbox.running"});
}

TEST_CASE("what makes a node unhealthy, and that it is well again, are events") {
  node_fixture node;
  client alice(node, "alice");
  node.worker->health->report("disk", "full");
  node.advance(1s);
  node.worker->health->report("disk", "fuller");  // the same subject
  node.advance(1s);
  node.worker->health->clear("disk");
  node.advance(1s);
  CHECK(events_of(alice, alice.ask(list_events()))->kinds ==
        names{"node.unhealthy", "node.healthy"});
}

TEST_CASE("the death of a launcher and that another holds the sandboxes are events, each in time") {
  node_fixture node;
  client alice(node, "alice");
  const auto kinds = [&] { return events_of(alice, alice.ask(list_events()))->kinds; };
  node.backend->host()->count({.launcher_deaths = 2});
  node.advance(1s);
  CHECK(kinds() == names{"launcher.died", "launcher.died"});
  node.backend->host()->count({.launcher_deaths = 2, .launcher_restarts = 1});
  node.advance(1s);
  node.advance(1s);
  CHECK(kinds() == names{"launcher.died", "launcher.died", "launcher.restarted"});
}

TEST_CASE("asking what a sandbox uses is no use of it") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice, create([](auto c) { c.setIdleTtlSeconds(5); }));
  for (int i = 0; i < 4; ++i) {
    node.advance(1s);
    const auto asked = alice.ask(get_usage(id));
    CHECK(read_reply(alice, asked, [](proto::Reply::Reader r) { CHECK(r.getBody().isUsage()); }));
  }
  node.advance(3s);
  CHECK(alice.call(get_usage(id)).code == "sandbox_failed");
  node.write_records();
  CHECK(node.record(id)->cause == base::cause::ttl);
}

TEST_CASE("a node tells its load") {
  node_fixture node;
  client alice(node, "alice");
  node.running_sandbox(alice, create([](auto c) { c.setMemoryMb(64); }));
  node.worker->health->report("disk", "full");
  const auto asked = alice.ask(list_nodes());
  CHECK(read_reply(alice, asked, [](proto::Reply::Reader r) {
    REQUIRE(r.getBody().isNodes());
    REQUIRE(r.getBody().getNodes().size() == 1);
    const auto n = r.getBody().getNodes()[0];
    CHECK(n.getEdge() == "e0");
    CHECK(n.getSandboxes() == 1);
    CHECK(n.getCreates() == 0);
    CHECK(n.getMemoryTotalBytes() == 8ULL << 30U);
    CHECK(n.getMemoryAdmittedBytes() == 64ULL << 20U);
    REQUIRE(n.getUnhealthy().size() == 1);
    CHECK(n.getUnhealthy()[0] == "disk: full");
  }));
}

TEST_CASE("requests are counted by kind and code, sandboxes by phase") {
  node_fixture node;
  const auto& m = *node.worker->metrics;
  const auto in = [&](base::phase p) {
    return m.sandboxes.at(static_cast<std::size_t>(p)).value();
  };
  {
    client alice(node, "alice");
    CHECK(m.connections.value() == 1);
    const auto id = node.running_sandbox(alice);
    CHECK(in(base::phase::running) == 1);
    CHECK(m.admitted_memory_bytes.value() > 0);
    alice.call(get("e0-nothing"));
    alice.call(stop(id));
    CHECK(in(base::phase::running) == 0);
    CHECK(in(base::phase::stopped) == 1);
    CHECK(m.admitted_memory_bytes.value() == 0);
  }
  CHECK(m.connections.value() == 0);
  const auto count = [&](proto::Request::Body::Which which, base::errc code) {
    return m.requests.at(static_cast<std::size_t>(which))
        .by_code.at(static_cast<std::size_t>(code))
        .value();
  };
  CHECK(count(proto::Request::Body::CREATE_SANDBOX, base::errc::ok) == 1);
  CHECK(count(proto::Request::Body::GET_SANDBOX, base::errc::not_found) == 1);
  CHECK(count(proto::Request::Body::GET_SANDBOX, base::errc::ok) == 0);
  node.advance(2h, 10min);  // retention
  CHECK(in(base::phase::stopped) == 0);
  const auto page = actors::metrics_page(m, *node.worker->health, node.backend.get());
  CHECK(page.find("dsec_requests_total{request=\"getSandbox\",code=\"not_found\"} 1\n") !=
        std::string::npos);
  CHECK(page.find("dsec_sandboxes{phase=\"stopped\"} 0\n") != std::string::npos);
}

TEST_CASE("sandboxes of an earlier process are counted in their phase") {
  node_fixture node;
  {
    client alice(node, "alice");
    node.running_sandbox(alice);
    node.write_records();
  }
  node.restart();
  const auto& phases = node.worker->metrics->sandboxes;
  CHECK(phases.at(static_cast<std::size_t>(base::phase::running)).value() == 1);
}
