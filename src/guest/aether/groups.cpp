// Making, killing and reusing the commands' groups (groups.hpp).
#include "guest/aether/groups.hpp"

#include "guest/aether/text.hpp"
#include "guest/channel.hpp"

namespace dsec::guest::aether {
namespace {

constexpr uint64_t first_interval = 5'000'000;  // ns
constexpr uint64_t longest_interval = 500'000'000;

using path_text = fixed_text<48>;

path_text path_of(int index, const char* file = "") {
  path_text path;
  path.add("cmd/").add(static_cast<uint64_t>(index)).add(file);
  return path;
}

long write_one(int index, const char* file) {
  const unique_fd fd(sys::open_at(fd_cgroup, path_of(index, file).c_str(), O_WRONLY | O_CLOEXEC));
  return fd ? sys::write(fd.get(), "1", 1) : -ENOENT;
}

/// The value of `key` in one of the group's files; 0 when it cannot be read.
uint64_t read_one(int index, const char* file, const char* key) {
  const unique_fd fd(sys::open_at(fd_cgroup, path_of(index, file).c_str(), O_RDONLY | O_CLOEXEC));
  char text[256];
  const long n = fd ? sys::read(fd.get(), text, sizeof text) : 0;
  return n > 0 ? keyed_value(text, static_cast<size_t>(n), key) : 0;
}

}  // namespace

long groups::make(int index) const {
  const path_text dir = path_of(index);
  long r = sys::call(__NR_mkdirat, fd_cgroup, dir.c_str(), 0755);
  if (r == -EEXIST) {  // left by an earlier aether of this slot, and perhaps killed: not to be used
    sys::call(__NR_unlinkat, fd_cgroup, dir.c_str(), AT_REMOVEDIR);
    r = sys::call(__NR_mkdirat, fd_cgroup, dir.c_str(), 0755);
  }
  if (r < 0) return r;
  r = sys::call(__NR_fchmodat, fd_cgroup, path_of(index, "/cgroup.procs").c_str(), 0664);
  return r < 0 || !count_memory_ ? r : write_one(index, "/memory.oom.group");
}

int groups::find(state wanted) const {
  for (int i = 0; i < capacity; ++i) {
    if (states_[i] == wanted) return i;
  }
  return -1;
}

void groups::prepare(bool count_memory) {
  count_memory_ = count_memory;
  const int index = find(state::absent);
  if (index < 0 || make(index) < 0) return;
  states_[index] = state::ready;
  ++ready_;
}

void groups::shrink() {
  for (int i = 0; i < capacity; ++i) {
    if (states_[i] != state::ready) continue;
    if (sys::call(__NR_unlinkat, fd_cgroup, path_of(i).c_str(), AT_REMOVEDIR) < 0) continue;
    states_[i] = state::absent;
    --ready_;
  }
}

groups::taken groups::take() {
  taken out;
  int index = ready_ > 0 ? find(state::ready) : -1;
  if (index >= 0) {
    --ready_;
  } else {
    index = find(state::absent);
    if (index < 0) {
      out.error = -EAGAIN;
      return out;
    }
    if (out.error = make(index); out.error < 0) return out;
  }
  const long fd = sys::open_at(fd_cgroup, path_of(index).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    states_[index] = state::absent;
    out.error = fd;
    return out;
  }
  states_[index] = state::used;
  out.index = index;
  out.dir = unique_fd(fd);
  return out;
}

void groups::kill(int index) {
  killed_[index] = true;
  write_one(index, "/cgroup.kill");
}

bool groups::populated(int index) {
  return read_one(index, "/cgroup.events", "populated ") != 0;
}

uint64_t groups::oom_kills(int index) {
  const uint64_t kills = read_one(index, "/memory.events", "oom_kill ");
  if (kills != 0) killed_[index] = true;
  return kills;
}

void groups::retire(int index) {
  if (ready_ < kept_ready && !killed_[index]) {
    states_[index] = state::ready;
    ++ready_;
    return;
  }
  const long r = sys::call(__NR_unlinkat, fd_cgroup, path_of(index).c_str(), AT_REMOVEDIR);
  if (r < 0) return watch(index);
  states_[index] = state::absent;
  killed_[index] = false;
}

void groups::watch(int index) {
  states_[index] = state::dying;
  ++dying_;
  check_interval_ = first_interval;
  next_check_ = sys::monotonic_ns() + check_interval_;
}

void groups::give_back(int index) {
  if (!populated(index)) return retire(index);
  kill(index);
  watch(index);
}

void groups::kill_used() {
  for (int i = 0; i < capacity; ++i) {
    if (states_[i] == state::used || states_[i] == state::dying) kill(i);
  }
}

void groups::check(uint64_t now) {
  for (int i = 0; i < capacity; ++i) {
    if (states_[i] != state::dying) continue;
    if (populated(i)) {
      kill(i);  // a child that was on its way into the group when it was killed
    } else {
      --dying_;
      retire(i);
    }
  }
  if (check_interval_ < longest_interval) check_interval_ *= 2;
  next_check_ = now + check_interval_;
}

}  // namespace dsec::guest::aether
