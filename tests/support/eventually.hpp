// Waits for what another thread, process or the kernel does in its own time: looks again and again,
// for a bounded time. The only place in the C++ tests that sleeps in order to wait.
#pragma once

#include <chrono>
#include <thread>

namespace dsec::test {

/// Whether `done` became true within `limit`.
template <class Predicate>
bool eventually(Predicate&& done, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace dsec::test
