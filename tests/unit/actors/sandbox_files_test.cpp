#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

#include "node_fixture.hpp"
#include "proto/limits.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace base = dsec::base;

namespace {

client::fill write(const std::string& id, const std::string& path, const std::string& data,
                   std::uint64_t offset = 0) {
  return [=](dsec::proto::Request::Builder r) {
    auto w = r.getBody().initWriteFile();
    w.setSandboxId(id.c_str());
    w.setPath(path.c_str());
    w.setData({reinterpret_cast<const kj::byte*>(data.data()), data.size()});
    w.setOffset(offset);
  };
}

client::fill read(const std::string& id, const std::string& path, std::uint64_t offset = 0,
                  std::uint32_t length = 0) {
  return [=](dsec::proto::Request::Builder r) {
    auto f = r.getBody().initReadFile();
    f.setSandboxId(id.c_str());
    f.setPath(path.c_str());
    f.setOffset(offset);
    f.setLength(length);
  };
}

}  // namespace

TEST_CASE("what is written can be read, in pieces") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  CHECK(alice.call(write(id, "/a", "hello")).size == 5);
  CHECK(alice.call(write(id, "/a", " world", 5)).size == 11);
  const auto all = alice.call(read(id, "/a"));
  CHECK(all.kind == "file_data");
  CHECK(all.out == "hello world");
  CHECK(all.end_of_file);
  const auto piece = alice.call(read(id, "/a", 6, 3));
  CHECK(piece.out == "wor");
  CHECK(piece.offset == 6);
  CHECK(piece.size == 11);
  CHECK_FALSE(piece.end_of_file);
}

TEST_CASE("a file that is not there is not found, and the error names it") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto a = alice.call(read(id, "/missing"));
  CHECK(a.code == "not_found");
  CHECK(a.message.find("/missing") != std::string::npos);
}

TEST_CASE("file operations leave no spool behind") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(write(id, "/a", "x"));
  alice.call(read(id, "/a"));
  alice.call(read(id, "/missing"));
  const auto steps = node.backend->steps();
  const auto forgotten = std::count_if(steps.begin(), steps.end(),
                                       [](const auto& s) { return s.rfind("forget", 0) == 0; });
  CHECK(forgotten == 3);
}

TEST_CASE("more data than fits in a message is refused") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const std::string big(dsec::proto::max_data_bytes + 1, 'x');
  CHECK(alice.call(write(id, "/a", big)).code == "too_large");
}

TEST_CASE("files of a stopped sandbox are gone with it") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(stop(id));
  CHECK(alice.call(read(id, "/a")).code == "sandbox_failed");
}

TEST_CASE("a file operation ends with its request's deadline") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(write(id, "/a", "x"));
  node.copy->held = true;  // its answer cannot be made
  const auto late = alice.ask(read(id, "/a"), 1000);
  node.advance(1s);
  CHECK(alice.got(late)->code == "deadline_exceeded");
  node.copy->held = false;
  node.run();
  CHECK(alice.call(read(id, "/a")).out == "x");
}

namespace {

client::fill write_once(const std::string& id, const std::string& operation,
                        const std::string& data, std::uint64_t offset = 0) {
  return [=](dsec::proto::Request::Builder r) {
    write(id, "/a", data, offset)(r);
    r.getBody().getWriteFile().setOperationId(operation.c_str());
  };
}

long writes(const node_fixture& node) {
  const auto steps = node.backend->steps();
  return std::count_if(steps.begin(), steps.end(), [](const std::string& s) {
    return s.starts_with("exec ") && s.find(" dsec.w.") != std::string::npos;
  });
}

}  // namespace

TEST_CASE("a write that is sent again is answered, not done again") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  CHECK(alice.call(write_once(id, "op1", "first")).size == 5);
  CHECK(alice.call(write_once(id, "op2", " more", 5)).size == 10);
  client again(node, "alice");
  CHECK(again.call(write_once(id, "op1", "first")).size == 5);  // it would have truncated the file
  CHECK(writes(node) == 2);
  CHECK(alice.call(read(id, "/a")).out == "first more");
  CHECK(alice.call(write_once(id, "not an id", "x")).code == "invalid_argument");
}

TEST_CASE("a write that is sent again while it goes on is joined, also at the next actor") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.copy->held = true;  // large data goes by a pool
  const std::string data(100'000, 'x');
  const auto first = alice.ask(write_once(id, "op1", data));
  client again(node, "alice");
  const auto second = again.ask(write_once(id, "op1", data));
  caf::anon_send_exit(node.actor_of(id), caf::exit_reason::kill);
  node.run();
  client third(node, "alice");
  const auto last = third.ask(write_once(id, "op1", data));
  node.copy->held = false;
  node.run();
  CHECK(third.got(last)->size == 100'000);
  // A large request is not kept to be asked again: its client is.
  CHECK((alice.got(first)->kind == "file_written" || alice.got(first)->code == "unavailable"));
  CHECK(again.got(second));
  CHECK(writes(node) == 1);
}

TEST_CASE("a write that could not be done now is done when it is sent again") {
  int refusals = 1;
  node_fixture node(
      {.run = {}, .on_step = [&](std::string_view step, const std::string&) -> base::result<void> {
         if (step == "exec" && refusals-- > 0)
           return base::fail(base::errc::unavailable, "no room now");
         return {};
       }});
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  CHECK(alice.call(write_once(id, "op1", "x")).code == "unavailable");
  CHECK(alice.call(write_once(id, "op1", "x")).size == 1);
}

TEST_CASE(
    "a write that failed for now is forgotten, then answered, and done when it is sent again") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const std::string data(100'000, 'x');
  node.copy->held = true;  // large data goes by a pool
  const auto first = alice.ask(write_once(id, "op1", data));
  node.copy->jobs.clear();
  dsec::backends::command_exited e;
  e.id = "dsec.w.op1";
  e.exit_code = EIO;
  node.table->sandboxes.at(id).book->events.add(e);
  node.run();
  CHECK_FALSE(alice.got(first));
  node.copy->held = false;
  node.run();
  CHECK(alice.got(first)->code == "io");
  CHECK(alice.call(write_once(id, "op1", data)).size == 100'000);
}

TEST_CASE("a write that was withdrawn and begun again is remembered for its full time") {
  dsec::actors::write_log log;
  log.begin("again", "/a");
  log.withdraw("again");
  for (std::size_t i = 1; i < dsec::actors::write_log::most; ++i)
    log.begin("w" + std::to_string(i), "/a");
  log.begin("again", "/a");
  CHECK(log.find("again") != nullptr);
  CHECK(log.find("w1") != nullptr);
  log.begin("one more", "/a");
  CHECK(log.find("again") != nullptr);
  CHECK(log.find("w1") == nullptr);
}
