#include "cli/reload.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "cli/notify.hpp"
#include "cli/state_dir.hpp"

namespace dsec::cli {

void reloader::reload() {
  notify_manager("RELOADING=1");
  const auto done = try_reload();
  if (done)
    base::log::info("reloaded");
  else
    base::log::error("reload_failed", {{"why", done.error().to_string()}});
  notify_manager("READY=1");
}

int reloader::next_stop(const sigset_t& signals, const timespec* patience) {
  while (true) {
    const int signal = ::sigtimedwait(&signals, nullptr, patience);
    if (signal != SIGHUP) return std::max(signal, 0);
    reload();
  }
}

base::result<void> reloader::try_reload() {
  DSEC_TRY(const auto wanted, read_());
  DSEC_TRY(const auto take_certificate, node_.load_certificate());
  // Where there is no key one is made, and clients read it: nothing below can fail.
  DSEC_TRY(const auto key, load_or_make_api_key(base::paths(running_.state)));
  take_certificate();
  keys_.set_local(auth::local_key(key));
  take_over(wanted);
  return {};
}

void reloader::take_over(const base::config& wanted) {
  for (const auto& change : base::changed_keys(running_, wanted)) {
    if (change.reloadable)
      base::log::info("config_changed", {{"key", change.key}});
    else
      base::log::warn("config_needs_restart", {{"key", change.key}});
  }
  running_ = base::with_reloadable(running_, wanted);
  base::log::level level{};
  if (base::log::parse_level(running_.log_level, level)) base::log::set_level(level);
  node_.apply(running_);
}

}  // namespace dsec::cli
