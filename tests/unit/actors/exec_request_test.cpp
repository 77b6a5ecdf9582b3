#include "actors/exec_request.hpp"

#include <capnp/message.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "proto/limits.hpp"

using namespace dsec::actors;
namespace base = dsec::base;
namespace backends = dsec::backends;
namespace proto = dsec::proto;

namespace {

sandbox_spec spec() {
  sandbox_spec s;
  s.env = {"PATH=/image/bin", "A=sandbox"};
  s.user = "root";
  s.workdir = "/work";
  s.image = "web:1";
  s.entrypoint = {"/init", "--"};
  s.cmd = {"serve", "80"};
  return s;
}

base::result<exec_request> parse(const std::function<void(proto::Exec::Builder)>& f,
                                 const sandbox_spec& of = spec()) {
  capnp::MallocMessageBuilder message;
  auto e = message.initRoot<proto::Exec>();
  e.setCommandId("c1");
  f(e);
  return parse_exec(e.asReader(), of, 64 << 20);
}

void program(proto::Exec::Builder e) {
  e.initArgv(1).set(0, "true");
}

bool has(const std::vector<std::string>& env, const std::string& variable) {
  return std::count(env.begin(), env.end(), variable) == 1;
}

}  // namespace

TEST_CASE("a command inherits user, directory and environment of its sandbox") {
  const auto r = parse(program);
  REQUIRE(r);
  CHECK(r->command.kind == backends::exec_kind::program);
  CHECK(r->command.user == "root");
  CHECK(r->command.cwd == "/work");
  CHECK(has(r->command.env, "PATH=/image/bin"));
  CHECK(has(r->command.env, "A=sandbox"));
  CHECK(r->command.output_cap == 64U << 20U);
}

TEST_CASE("its own environment stands over the sandbox's") {
  const auto r = parse([](auto e) {
    program(e);
    auto env = e.initEnv(2);
    env[0].setName("A");
    env[0].setValue("command");
    env[1].setName("HOME");
    env[1].setValue("/home/me");
  });
  CHECK(has(r->command.env, "A=command"));
  CHECK(has(r->command.env, "HOME=/home/me"));
}

TEST_CASE("home is left to the inside, which has the image's passwd") {
  for (const auto* user : {"root", "0:0", "1000", "me"}) {
    const auto r = parse([user](auto e) {
      program(e);
      e.setUser(user);
    });
    for (const auto& variable : r->command.env) CHECK_FALSE(variable.starts_with("HOME="));
  }
}

TEST_CASE("exactly one of argv and shell is wanted") {
  CHECK(parse([](auto) {}).error().code == base::errc::invalid_argument);
  CHECK(parse([](auto e) {
          program(e);
          e.setShell("true");
        })
            .error()
            .code == base::errc::invalid_argument);
  const auto shell = parse([](auto e) { e.setShell("exit 3"); });
  CHECK(shell->command.kind == backends::exec_kind::shell);
  CHECK(shell->command.argv == std::vector<std::string>{"exit 3"});
}

TEST_CASE(
    "argv follows the image's entrypoint when that is asked for, else the entrypoint is nothing") {
  CHECK(parse(program)->command.argv == std::vector<std::string>{"true"});
  const auto with = parse([](auto e) {
    program(e);
    e.setUseEntrypoint(true);
  });
  CHECK(with->command.argv == std::vector<std::string>{"/init", "--", "true"});
  CHECK(with->command.kind == backends::exec_kind::program);
  const auto alone = parse([](auto e) { e.setUseEntrypoint(true); });
  CHECK(alone->command.argv == std::vector<std::string>{"/init", "--", "serve", "80"});
}

TEST_CASE("an entrypoint that is not there, is empty or is given a script is refused") {
  const auto script = parse([](auto e) {
    e.setShell("true");
    e.setUseEntrypoint(true);
  });
  CHECK(script.error().code == base::errc::invalid_argument);
  const auto asked = [](auto e) { e.setUseEntrypoint(true); };
  auto of = spec();
  of.entrypoint.clear();
  const auto none = parse(asked, of);
  CHECK(none.error().code == base::errc::invalid_argument);
  CHECK(none.error().message.find("'web:1' has no Entrypoint") != std::string::npos);
  of.entrypoint = {""};
  CHECK(parse(asked, of).error().code == base::errc::invalid_argument);
}

TEST_CASE("command ids are checked, and ours are not for clients") {
  for (const auto* bad : {"", "a b", "a/b", "dsec.file1"}) {
    const auto r = parse([bad](auto e) {
      program(e);
      e.setCommandId(bad);
    });
    CHECK(r.error().code == base::errc::invalid_argument);
  }
}

TEST_CASE("an output cap is even, not tiny and not endless") {
  const auto cap = [](std::uint64_t asked) {
    return parse([asked](auto e) {
             program(e);
             e.setOutputLimit(asked);
           })
        ->command.output_cap;
  };
  CHECK(cap(1) == 4096);
  CHECK(cap(9999) == 10'000);
  CHECK(cap(~0ULL) == 1ULL << 30U);
}

TEST_CASE("too much standard input is too large, not cut") {
  const auto r = parse([](auto e) {
    program(e);
    e.initStdin(static_cast<unsigned>(proto::max_data_bytes) + 1);
  });
  CHECK(r.error().code == base::errc::too_large);
}

TEST_CASE("an endless time limit does not wrap around") {
  const auto r = parse([](auto e) {
    program(e);
    e.setTimeoutMs(~0ULL);
  });
  CHECK(r->command.timeout.count() > 0);
}

TEST_CASE("file operations need an absolute path and read at most a message") {
  capnp::MallocMessageBuilder message;
  auto f = message.initRoot<proto::ReadFile>();
  f.setPath("etc/passwd");
  CHECK(parse_read_file(f.asReader(), spec(), "dsec.file1").error().code ==
        base::errc::invalid_argument);
  f.setPath("/etc/passwd");
  f.setOffset(7);
  const auto r = parse_read_file(f.asReader(), spec(), "dsec.file1");
  REQUIRE(r);
  CHECK(r->kind == backends::exec_kind::read_file);
  CHECK(r->length == proto::max_data_bytes);
  CHECK(r->output_cap >= r->length);
  CHECK(r->offset == 7);
}

TEST_CASE("a file is written with the mode asked for, or 0644") {
  capnp::MallocMessageBuilder message;
  auto f = message.initRoot<proto::WriteFile>();
  f.setPath("/a");
  CHECK(parse_write_file(f.asReader(), spec(), "x")->mode == 0644);
  f.setMode(0755);
  CHECK(parse_write_file(f.asReader(), spec(), "x")->mode == 0755);
  f.setMode(0100644);
  CHECK(parse_write_file(f.asReader(), spec(), "x").error().code == base::errc::invalid_argument);
}

TEST_CASE("two streams inline fit in one message") {
  CHECK(inline_limit(0) == proto::default_inline_bytes);
  CHECK(inline_limit(5) == 5);
  CHECK(2ULL * inline_limit(0xffffffff) <= proto::max_data_bytes);
}
