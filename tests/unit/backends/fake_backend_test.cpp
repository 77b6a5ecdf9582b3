#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "backends/fake/backend.hpp"

using namespace std::chrono_literals;
namespace backends = dsec::backends;
namespace base = dsec::base;
namespace fake = dsec::fake;

namespace {

/// What an instance reported.
struct witness {
  std::mutex mutex;
  std::vector<std::string> started, failed;
  std::vector<backends::command_exited> exited;
  std::vector<base::cause> gone;

  backends::event_sink sink() {
    return {.started =
                [this](backends::command_started e) {
                  const std::scoped_lock lock(mutex);
                  started.push_back(e.id);
                },
            .failed =
                [this](backends::command_failed e) {
                  const std::scoped_lock lock(mutex);
                  failed.push_back(e.id);
                },
            .exited =
                [this](backends::command_exited e) {
                  const std::scoped_lock lock(mutex);
                  exited.push_back(std::move(e));
                },
            .gone =
                [this](base::cause why, std::string) {
                  const std::scoped_lock lock(mutex);
                  gone.push_back(why);
                }};
  }

  std::optional<backends::command_exited> wait_for_exit() {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < deadline) {
      {
        const std::scoped_lock lock(mutex);
        if (!exited.empty()) return exited.back();
      }
      std::this_thread::yield();
    }
    return std::nullopt;
  }
};

backends::start_spec box() {
  backends::start_spec s;
  s.sandbox_id = "e0-a";
  return s;
}

backends::exec_spec command(const std::string& id) {
  backends::exec_spec s;
  s.id = id;
  s.argv = {"true"};
  return s;
}

}  // namespace

TEST_CASE("a fake command ends with its fate") {
  fake::backend b({.run =
                       [](const backends::exec_spec&) {
                         fake::fate f;
                         f.exit_code = 3;
                         f.out = "hi";
                         return f;
                       },
                   .on_step = {}});
  witness w;
  auto i = b.start(box(), w.sink());
  REQUIRE(i);
  REQUIRE((*i)->exec(command("c")));
  REQUIRE(w.exited.size() == 1);
  CHECK(w.started == std::vector<std::string>{"c"});
  CHECK(w.exited[0].exit_code == 3);
  CHECK((*i)->read_output("c", backends::stream::out, 0, 10, 2)->data == "hi");
  CHECK((*i)->exec(command("c")).error().code == base::errc::already_exists);
}

TEST_CASE("a fake command that takes longer than its limit times out") {
  fake::backend b({.run =
                       [](const backends::exec_spec&) {
                         fake::fate f;
                         f.held = true;
                         return f;
                       },
                   .on_step = {}});
  witness w;
  auto i = b.start(box(), w.sink());
  auto c = command("c");
  c.timeout = 5ms;
  REQUIRE((*i)->exec(c));
  const auto e = w.wait_for_exit();
  REQUIRE(e);
  CHECK(e->timed_out);
  CHECK(e->exit_code == 137);
}

TEST_CASE("a fake command ends by itself after its time") {
  fake::backend b({.run =
                       [](const backends::exec_spec&) {
                         fake::fate f;
                         f.after = 2ms;
                         return f;
                       },
                   .on_step = {}});
  witness w;
  auto i = b.start(box(), w.sink());
  REQUIRE((*i)->exec(command("c")));
  const auto e = w.wait_for_exit();
  REQUIRE(e);
  CHECK(e->exit_code == 0);
}

TEST_CASE("a fake sandbox that is stopped says nothing of what ran in it") {
  fake::backend b({.run =
                       [](const backends::exec_spec&) {
                         fake::fate f;
                         f.held = true;
                         return f;
                       },
                   .on_step = {}});
  witness w;
  auto i = b.start(box(), w.sink());
  REQUIRE((*i)->exec(command("c")));
  CHECK(b.live() == 1);
  REQUIRE((*i)->stop());
  REQUIRE((*i)->stop());
  CHECK(b.live() == 0);
  CHECK(w.exited.empty());
  CHECK((*i)->exec(command("d")).error().code == base::errc::unavailable);
}

TEST_CASE("a failed step of a fake leaves nothing started") {
  fake::backend b({.run = {}, .on_step = [](std::string_view step, const std::string&) {
                     return step == "start" ? base::result<void>(base::fail(base::errc::io, "no"))
                                            : base::result<void>();
                   }});
  witness w;
  CHECK(b.start(box(), w.sink()).error().code == base::errc::io);
  CHECK(b.live() == 0);
  CHECK(b.steps().empty());
}

TEST_CASE("fake output over its cap loses the middle as a spool does") {
  const auto text = std::string(4096, 'a') + std::string(10, 'b') + std::string(4096, 'c');
  fake::backend b({.run =
                       [&](const backends::exec_spec&) {
                         fake::fate f;
                         f.out = text;
                         return f;
                       },
                   .on_step = {}});
  witness w;
  auto i = b.start(box(), w.sink());
  auto c = command("c");
  c.output_cap = 8192;
  REQUIRE((*i)->exec(c));
  const auto total = w.exited.at(0).stdout_total;
  const auto head = (*i)->read_output("c", backends::stream::out, 4000, 1000, total);
  CHECK(head->data.size() == 96);
  const auto tail = (*i)->read_output("c", backends::stream::out, 4096, 10'000, total);
  CHECK(tail->offset == 4106);
  CHECK(tail->data == std::string(4096, 'c'));
}

TEST_CASE("a fake sandbox that dies says so") {
  fake::backend b;
  witness w;
  auto i = b.start(box(), w.sink());
  b.fail("e0-a", base::cause::oom, "out of memory");
  CHECK(w.gone == std::vector<base::cause>{base::cause::oom});
}
