// Kernel objects of sys/: deletion of any tree, sealed memory files, sockets.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "backends/sys/datagram.hpp"
#include "backends/sys/event_loop.hpp"
#include "backends/sys/file.hpp"
#include "backends/sys/temp_dir.hpp"

using namespace dsec;
namespace fs = std::filesystem;

TEST_CASE("a tree deeper than any path is removed") {
  const auto dir = *sys::temp_dir::make("dsec-tree-test");
  auto here = *sys::open_directory(dir.path());
  REQUIRE(sys::make_directory_at(here.get(), "tree", 0700));
  auto at = *sys::open_at(here.get(), "tree", O_RDONLY | O_DIRECTORY);
  const std::string name(200, 'd');
  for (int depth = 0; depth < 1500; ++depth) {
    REQUIRE(sys::make_directory_at(at.get(), name, 0700));
    at = *sys::open_at(at.get(), name, O_RDONLY | O_DIRECTORY);
    REQUIRE(sys::open_at(at.get(), "file", O_WRONLY | O_CREAT, 0));
  }
  at.reset();
  REQUIRE(sys::remove_tree_at(here.get(), "tree"));
  CHECK(sys::list_directory(here.get())->empty());
}

TEST_CASE("links out of a tree are removed, not followed") {
  const auto dir = *sys::temp_dir::make("dsec-tree-test");
  fs::create_directories(dir.path() / "keep");
  std::ofstream(dir.path() / "keep/file") << "x";
  fs::create_directories(dir.path() / "tree/sub");
  fs::create_directory_symlink(dir.path() / "keep", dir.path() / "tree/sub/link");
  ::mkfifo((dir.path() / "tree/fifo").c_str(), 0);
  const auto here = *sys::open_directory(dir.path());
  REQUIRE(sys::remove_tree_at(here.get(), "tree"));
  CHECK(fs::exists(dir.path() / "keep/file"));
  CHECK_FALSE(fs::exists(dir.path() / "tree"));
}

TEST_CASE("a sealed memory file can be read by all and changed by none") {
  const std::string text = "content";
  const auto fd = *sys::sealed_memfd("test", std::as_bytes(std::span(text)), 0444);
  CHECK(*sys::read_all(fd.get(), "test") == text);
  CHECK(::write(fd.get(), "x", 1) < 0);
  const auto again =
      ::open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_RDWR | O_CLOEXEC);
  if (again >= 0) CHECK(::write(again, "x", 1) < 0);  // root may open it; the seal holds
  ::close(again);
}

TEST_CASE("datagrams carry descriptors and keep their bounds") {
  auto ends = *sys::datagram_pair();
  const std::string text = "hello";
  const int fds[] = {ends.first.get(), ends.second.get()};
  REQUIRE(sys::send_datagram(ends.first.get(), std::as_bytes(std::span(text)), fds) == true);
  std::byte buffer[64];
  auto got = *sys::receive_datagram(ends.second.get(), buffer);
  CHECK(got.size == 5);
  CHECK(got.fds.size() == 2);
  CHECK(sys::receive_datagram(ends.second.get(), buffer)->state == sys::receive_state::nothing);
  const std::string big(100, 'x');
  REQUIRE(sys::send_datagram(ends.first.get(), std::as_bytes(std::span(big))) == true);
  CHECK(sys::receive_datagram(ends.second.get(), buffer).error().code == base::errc::protocol);
  got.fds.clear();
  ends.first.reset();
  CHECK(sys::receive_datagram(ends.second.get(), buffer)->state == sys::receive_state::closed);
}

TEST_CASE("a callback can take itself out of the loop, and unwatch waits for one that runs") {
  auto loop = *sys::event_loop::start("test");
  auto ends = *sys::datagram_pair();
  std::atomic<int> runs{0};
  std::atomic<bool> inside{false}, go{false};
  sys::event_loop::token token = 0;
  token = *loop->watch(ends.second.get(), EPOLLIN, [&](std::uint32_t) {
    ++runs;
    inside = true;
    while (!go) std::this_thread::yield();
    inside = false;
  });
  REQUIRE(sys::send_datagram(ends.first.get(), sys::bytes_of('x')) == true);
  while (!inside) std::this_thread::yield();
  std::thread releaser([&] { go = true; });
  loop->unwatch(token, ends.second.get());
  CHECK_FALSE(inside);
  const int after = runs;
  releaser.join();
  REQUIRE(sys::send_datagram(ends.first.get(), sys::bytes_of('x')) == true);
  CHECK(runs == after);
}
