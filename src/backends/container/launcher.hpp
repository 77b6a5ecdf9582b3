// Keeps a launcher running for the backend: takes over the one of an earlier dsecd, starts one when
// it is first needed and again whenever it has died or does not answer (then it is killed first);
// the new one enters the old one's layer namespace and adopts the sandboxes that live on.
// Thread-safe; all but current() block, by the client's time limits at most (take_over() by its
// own), and get() only while there is no living launcher. Owned by the backend.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/container/launcher_client.hpp"
#include "backends/container/launcher_process.hpp"
#include "backends/container/launcher_vigil.hpp"
#include "base/paths.hpp"

namespace dsec::container {

/// A sandbox that outlived its launcher. Without descriptors: they could not be duplicated now.
struct survivor {
  guest::launch_adopt request;
  sys::unique_fd channel, pidfd;
};

/// What an earlier dsecd's launcher holds.
struct inherited_launcher {
  pid_t pid = 0;
  std::uint64_t generation = 0;
  std::vector<listed_sandbox> sandboxes;
};

class launcher {
 public:
  struct hooks {
    launcher_events events;
    std::function<std::vector<survivor>()> survivors;  // asked when a new launcher takes over
    std::function<void()> incomplete = [] {};          // not all were adopted: adopt_again() is due
    /// A launcher in the place of another holds all survivors: dsecd may end without them.
    std::function<void()> replaced = [] {};
  };
  launcher(base::paths paths, sys::event_loop& loop, hooks h);

  /// Before all else: connects to the launcher that an earlier dsecd left and tells what it holds.
  /// One that is stopped is continued, a silent one is waited for up to `patience`. It is killed,
  /// and with it die its sandboxes, only if nobody listens at its socket any more. All errors leave
  /// it alone. errc::unavailable: it did not answer; unsupported: it speaks another version.
  /// nullopt: there is none.
  base::result<std::optional<inherited_launcher>> take_over(std::chrono::milliseconds patience);
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

  /// Tells the launcher once more of all survivors; an error when it does not hold each of them
  /// then.
  base::result<void> adopt_again();
  /// For sandboxes that the launcher of generation `holder` has told of and that count among the
  /// survivors from now on: if it has died meanwhile, the next one may have asked for them too
  /// early and is told of all once more.
  void see_held(std::uint64_t holder);

  /// Has a sandbox that no launcher will adopt any more forgotten: true once none holds it, false
  /// while its aether is not reaped (ask again). Waits for a launcher that is being told of
  /// survivors, since that may have been told of it before.
  base::result<bool> release(const std::string& sandbox);

  /// Ends it, if it runs: asked, or killed when it does not answer or still has sandboxes, which
  /// are none of ours then.
  base::result<void> shutdown();
  /// Lets go of it: it runs on for the next dsecd.
  void leave();

 private:
  base::result<void> start_locked();
  base::result<void> end_process_locked();
  base::result<std::optional<inherited_launcher>> await_locked(launcher_vigil& vigil);
  base::result<inherited_launcher> meet_locked(sys::unique_fd connection, launcher_vigil& vigil);
  base::result<void> adopt_all_locked(launcher_client& client);
  void tell_if_replaced_locked();
  lease held();  // living or not
  void publish(std::shared_ptr<launcher_client> client);
  void set_adopting(bool adopting);

  base::paths paths_;
  sys::event_loop& loop_;
  hooks hooks_;

  std::mutex lease_mutex_;  // for what follows; taken last and held for no call
  std::shared_ptr<launcher_client> client_;
  std::uint64_t generation_ = 0;
  bool adopting_ = false;  // client_ is being told of survivors
  std::mutex mutex_;       // one start or end at a time; for what follows
  bool shut_down_ = false;
  bool met_ = false;        // one has greeted
  bool replacing_ = false;  // one that had greeted is gone, and none holds all survivors since
  std::optional<launcher_process> process_;
  sys::unique_fd layers_ns_;  // keeps the layers mounted from one launcher to the next
};

}  // namespace dsec::container
