// Keeps a launcher running for the backend: takes over the one of an earlier dsecd, starts one when
// it is first needed and again whenever it has died or does not answer (then it is killed first);
// the new one enters the old one's layer namespace and adopts the sandboxes that live on.
// Thread-safe; all but current() block, by the client's time limits at most, and get() only while
// there is no living launcher. Owned by the backend.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/container/launcher_client.hpp"
#include "backends/container/launcher_process.hpp"
#include "base/paths.hpp"

namespace dsec::container {

/// A sandbox that outlived its launcher.
struct survivor {
  guest::launch_adopt request;
  sys::unique_fd channel, pidfd;
};

class launcher {
 public:
  struct hooks {
    launcher_events events;
    std::function<std::vector<survivor>()> survivors;  // asked when a new launcher takes over
  };
  launcher(base::paths paths, sys::event_loop& loop, hooks h);

  /// Before all else: connects to the launcher that an earlier dsecd left, if one answers, and
  /// tells what it holds. One that does not answer is killed, and with it die its sandboxes.
  /// Other errors leave it alone; errc::unsupported: it speaks another version.
  base::result<std::vector<listed_sandbox>> take_over();
  /// Kills all launchers of the state directory but the one that it works with.
  base::result<std::size_t> end_others();

  struct lease {
    std::shared_ptr<launcher_client> client;
    std::uint64_t generation = 0;  // counts launchers; what one held is gone with it
  };
  /// The living launcher; starts one if there is none.
  base::result<lease> get();
  /// The same, but neither starts one nor waits for one that is being started.
  lease current();

  /// Has a sandbox that no launcher will adopt any more forgotten: true once none holds it, false
  /// while its aether is not reaped (ask again). Waits for a launcher that is being started, since
  /// that may have been told of it before.
  base::result<bool> release(const std::string& sandbox);

  /// Ends it, if it runs: asked, or killed when it does not answer or still has sandboxes, which
  /// are none of ours then.
  base::result<void> shutdown();
  /// Lets go of it: it runs on for the next dsecd.
  void leave();

 private:
  base::result<void> start_locked();
  base::result<void> end_process_locked();
  base::result<std::vector<listed_sandbox>> meet_locked(sys::unique_fd connection);

  base::paths paths_;
  sys::event_loop& loop_;
  hooks hooks_;
  lease held();  // living or not
  void publish(std::shared_ptr<launcher_client> client);

  std::mutex lease_mutex_;  // for client_ and generation_; taken last and held for no call
  std::shared_ptr<launcher_client> client_;
  std::uint64_t generation_ = 0;
  std::mutex mutex_;  // one start or end at a time; for what follows
  bool shut_down_ = false;
  std::optional<launcher_process> process_;
  sys::unique_fd layers_ns_;  // keeps the layers mounted from one launcher to the next
};

}  // namespace dsec::container
