#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "node_fixture.hpp"
#include "proto/limits.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;

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
  node.copy->held = true;  // its answer cannot be made
  const auto late = alice.ask(write(id, "/a", "x"), 1000);
  node.advance(1s);
  CHECK(alice.got(late)->code == "deadline_exceeded");
  node.copy->held = false;
  node.run();
  CHECK(alice.call(read(id, "/a")).out == "x");
}
