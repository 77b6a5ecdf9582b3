// When the callback of a watched descriptor may still run, seen from the thread that unwatches.
#include "backends/sys/event_loop.hpp"

#include <sys/eventfd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>

using namespace std::chrono_literals;
namespace sys = dsec::sys;

TEST_CASE("unwatch waits for a callback that runs, also for one that has unwatched itself",
          "[event_loop]") {
  const bool by_itself = GENERATE(false, true);
  const auto loop = *sys::event_loop::start("test");
  const dsec::base::unique_fd fd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  std::promise<void> entered, go_on;
  std::atomic<sys::event_loop::token> token{0};
  std::atomic<bool> returned{false};
  token = *loop->watch(fd.get(), EPOLLIN, [&](std::uint32_t) {
    while (token == 0) std::this_thread::yield();
    if (by_itself) loop->unwatch(token, fd.get());
    entered.set_value();
    go_on.get_future().wait();
    returned = true;
  });
  entered.get_future().wait();
  auto unwatched = std::async(std::launch::async, [&] {
    loop->unwatch(token, fd.get());
    return returned.load();
  });
  CHECK(unwatched.wait_for(50ms) == std::future_status::timeout);
  go_on.set_value();
  CHECK(unwatched.get());
}

TEST_CASE("unwatch of what is not watched returns at once", "[event_loop]") {
  const auto loop = *sys::event_loop::start("test");
  loop->unwatch(0, -1);
  loop->unwatch(7, -1);
}
