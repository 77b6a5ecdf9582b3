// The process that holds a state directory's lock, from the outside: found, signalled, waited for.
// By a pidfd that is known to mean the holder, so nothing here can hit a process that took its
// number over. Blocking; main thread.
#pragma once

#include <optional>
#include <string>

#include "backends/sys/pidfd.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"
#include "cli/state_dir.hpp"

namespace dsec::cli {

class holder {
 public:
  /// nullopt: nobody holds it.
  static base::result<std::optional<holder>> find(const base::paths& where);

  /// A daemon; else a `dsecd stop --all` or `dsecd purge`.
  [[nodiscard]] bool serves() const { return who_.use == lock_use::serve; }
  /// Nothing happens to one that has ended.
  [[nodiscard]] base::result<void> signal(int number) const;
  /// Until it has ended. errc::deadline_exceeded.
  [[nodiscard]] base::result<void> wait(sys::deadline until) const;

 private:
  holder(lock_owner who, sys::unique_fd process) : who_(who), process_(std::move(process)) {}
  [[nodiscard]] std::string name() const;

  lock_owner who_;
  sys::unique_fd process_;
};

}  // namespace dsec::cli
