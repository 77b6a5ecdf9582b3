// Table of live commands (live_command.hpp).
#include "guest/aether/live_command.hpp"

#include <linux/mman.h>

namespace dsec::guest::aether {

bool waiting_start::keep(const char* inline_strings) {
  if (request.payload == 0) {
    const long r = sys::call(__NR_mmap, 0, request.strings_length, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r < 0 && r > -4096) return false;
    strings = reinterpret_cast<char*>(r);
    copy_bytes(strings, inline_strings, request.strings_length);
  }
  waits = true;
  return true;
}

void waiting_start::drop() {
  if (strings != nullptr) sys::call(__NR_munmap, strings, request.strings_length);
  strings = nullptr;
  waits = false;
  payload.reset();
}

void live_commands::fit(uint64_t descriptors) {
  constexpr uint64_t of_one = 5;  // two pipes, two spools, and the status pipe or the stdin
  // Fixed ones, abandoned status pipes, what a datagram brings, the other ends of a start.
  constexpr uint64_t others = 48;
  const uint64_t fitting = descriptors < others ? 0 : (descriptors - others) / of_one;
  limit_ = fitting < capacity ? static_cast<uint32_t>(fitting) : capacity;
  if (limit_ == 0) limit_ = 1;
}

live_command* live_commands::take() {
  if (count_ >= limit_) return nullptr;
  for (int i = 0; i < capacity; ++i) {
    live_command& c = table_[i];
    if (c.state != phase::free) continue;
    if (i >= used_) used_ = i + 1;
    ++count_;
    c.order = next_order_++;
    c.group = -1;
    c.timeout_at = c.check_at = c.give_up_at = UINT64_MAX;
    return &c;
  }
  return nullptr;
}

void live_commands::release(live_command& c) {
  c.waiting.drop();
  c = live_command{};
  --count_;
  while (used_ > 0 && table_[used_ - 1].state == phase::free) --used_;
}

live_command* live_commands::of_pid(int pid) {
  for (int i = 0; i < used_; ++i) {
    if (table_[i].state != phase::free && table_[i].pid == pid) return &table_[i];
  }
  return nullptr;
}

live_command* live_commands::first_queued() {
  live_command* first = nullptr;
  each([&](live_command& c) {
    if (c.state == phase::queued && (first == nullptr || c.order < first->order)) first = &c;
  });
  return first;
}

}  // namespace dsec::guest::aether
