#include "cli/holder.hpp"

#include <cerrno>
#include <utility>

namespace dsec::cli {
namespace {

using base::errc;
using base::fail;
using base::result;

/// Each takes a holder that ends between two looks.
constexpr int most_tries = 100;

}  // namespace

result<std::optional<holder>> holder::find(const base::paths& where) {
  for (int i = 0; i < most_tries; ++i) {
    DSEC_TRY(const auto who, find_lock_owner(where));
    if (!who) return std::optional<holder>();
    auto process = sys::open_pidfd(who->pid);
    if (!process && process.error().sys_errno == ESRCH) continue;  // it has just ended
    if (!process) return fail(process.error());
    // The number may have passed to another process before it was opened: the lock has not.
    DSEC_TRY(const auto still, find_lock_owner(where));
    if (still == who) return std::optional(holder(*who, std::move(*process)));
  }
  return fail(errc::unavailable, "state directory '" + where.state().string() +
                                     "' passes from one process to the next; try again");
}

std::string holder::name() const {
  return (serves() ? "dsecd" : "the `dsecd stop --all` or `dsecd purge` that works on it") +
         (" (pid " + std::to_string(who_.pid) + ")");
}

result<void> holder::signal(int number) const {
  auto sent = sys::signal_process(process_.get(), number);
  if (!sent) sent.error().message = "cannot signal " + name();
  return sent;
}

result<void> holder::wait(sys::deadline until) const {
  if (sys::wait_ended(process_.get(), until)) return {};
  return fail(errc::deadline_exceeded,
              name() + " has not ended in time; wait longer (--timeout), or look at its log");
}

}  // namespace dsec::cli
