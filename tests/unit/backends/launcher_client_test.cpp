// dsecd's end of the launcher's socket against a far end played by the test.
#include "backends/container/launcher_client.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <future>
#include <span>

#include "backends/sys/datagram.hpp"

using namespace dsec;
using namespace dsec::container;
using namespace std::chrono_literals;
using base::errc;

namespace {

struct far_end {
  std::unique_ptr<sys::event_loop> loop = *sys::event_loop::start("test");
  sys::unique_fd near, far;
  std::atomic<int> down{0};

  far_end() {
    auto ends = sys::datagram_pair();
    REQUIRE(ends);
    near = std::move(ends->first);
    far = std::move(ends->second);
  }
  launcher_events events() {
    return {.exited = [](const auto&, int) {}, .down = [this] { ++down; }};
  }
  /// Answers the next request, a hello, as a launcher of that version; the process is this one.
  void greet(std::uint32_t version) {
    pollfd p{far.get(), POLLIN, 0};
    if (::poll(&p, 1, 5000) != 1) return;
    guest::launch_hello hello{};
    const auto got = sys::receive_datagram(far.get(), std::as_writable_bytes(std::span(&hello, 1)));
    if (!got || got->size != sizeof hello) return;
    hello.version = version;
    hello.pid = ::getpid();
    (void)sys::send_datagram(far.get(), sys::bytes_of(hello), std::array{far.get()});
  }
};

}  // namespace

TEST_CASE("a launcher of a version that is spoken is greeted, and no other") {
  const auto [version, good] = GENERATE(
      table<std::uint32_t, bool>({{1, false}, {2, true}, {3, true}, {4, true}, {5, false}}));
  far_end e;
  auto serving = std::async(std::launch::async, [&, v = version] { e.greet(v); });
  const auto client = launcher_client::open(*e.loop, std::move(e.near), e.events(), nullptr,
                                            {.oldest = 2, .current = 4});
  serving.get();
  CHECK(client.has_value() == good);
  if (good) return;
  CHECK(client.error().code == errc::unsupported);
  CHECK(client.error().message.find("version " + std::to_string(version)) != std::string::npos);
}

TEST_CASE("a launcher that does not answer is waited for as long as patience lasts, and lives") {
  far_end e;
  auto serving = std::async(std::launch::async, [&] { e.greet(guest::launch_version); });
  int asked = 0;
  auto client =
      launcher_client::open(*e.loop, std::move(e.near), e.events(), [&] { return ++asked < 3; });
  serving.get();
  REQUIRE(client);
  const auto began = std::chrono::steady_clock::now();
  const auto listed = (*client)->list();  // killing it would end this test
  CHECK(std::chrono::steady_clock::now() - began >= 1s);
  REQUIRE_FALSE(listed);
  CHECK(listed.error().code == errc::unavailable);
  CHECK(asked == 3);
  CHECK((*client)->is_down());
  CHECK(e.down == 1);
}
