#include "backends/container/launcher_vigil.hpp"

#include <signal.h>

#include <string>
#include <thread>
#include <utility>

#include "backends/container/launcher_search.hpp"
#include "base/log.hpp"

namespace dsec::container {
namespace {

using clock = std::chrono::steady_clock;

constexpr auto pause = std::chrono::milliseconds(200);
constexpr auto word_every = std::chrono::seconds(5);

/// "process 12 (D: in a call that waits, for a disk perhaps)"
std::string name(const launcher_seen& l) {
  const char state = l.state();
  const char* meaning = state == 'D'   ? ": in a call that waits, for a disk perhaps"
                        : state == 'T' ? ": stopped"
                        : state == 't' ? ": stopped by a debugger"
                                       : "";
  return "process " + std::to_string(l.pid) + " (state " + state + meaning + ")";
}

/// Normally there is one; of several any may be the one that holds the sandboxes.
std::string names(const base::paths& paths) {
  const auto found = find_launchers(paths.state());
  std::string all;
  if (found) {
    for (const auto& l : *found) all += (all.empty() ? "" : ", ") + name(l);
  }
  return all.empty() ? "whatever listens at '" + paths.launcher_socket().string() + "'" : all;
}

void wake_stopped(const std::filesystem::path& state) {
  const auto found = find_launchers(state);
  if (!found) return;
  for (const auto& l : *found) {
    if (l.state() != 'T') continue;
    const auto sent = sys::signal_process(l.pidfd.get(), SIGCONT);
    base::log::warn("launcher_continued", {{"pid", l.pid}, {"sent", sent.has_value()}});
  }
}

}  // namespace

launcher_vigil::launcher_vigil(base::paths paths, std::chrono::milliseconds limit)
    : paths_(std::move(paths)),
      began_(clock::now()),
      until_(began_ + limit),
      next_word_(began_ + word_every) {
  wake_stopped(paths_.state());
}

bool launcher_vigil::go_on() {
  wake_stopped(paths_.state());
  const auto now = clock::now();
  if (now >= next_word_) {
    next_word_ = now + word_every;
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - began_);
    base::log::warn("launcher_silent", {{"launcher", names(paths_)}, {"seconds", waited.count()}});
  }
  return now < until_;
}

bool launcher_vigil::go_on_after_a_pause() {
  std::this_thread::sleep_for(pause);
  return go_on();
}

base::error launcher_vigil::silence() const {
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(clock::now() - began_);
  return {base::errc::unavailable,
          "the launcher has not answered for " + std::to_string(waited.count()) +
              " s: " + names(paths_) +
              ". It and its sandboxes were left as they are: start dsecd again when what it waits "
              "for is back, or end them with `dsecd stop --all`",
          0};
}

}  // namespace dsec::container
