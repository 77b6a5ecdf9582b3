// Everything one sandbox consists of, and the one list of steps that puts it together and takes it
// apart. Shared by its instance and the registry. start() and stop() block and are called by one
// thread at a time (the instance sees to it); note_exit() and `channel` callbacks come from the
// event loop's thread.
#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "backends/backend.hpp"
#include "backends/container/aether_channel.hpp"
#include "backends/container/command_log.hpp"
#include "backends/container/sandbox_host.hpp"
#include "backends/container/spool.hpp"

namespace dsec::container {

inline constexpr std::size_t start_step_count = 7;

struct sandbox_parts {
  sandbox_parts(sandbox_host& h, backends::start_spec s) : host(h), spec(std::move(s)) {}

  sandbox_host& host;
  const backends::start_spec spec;
  channel_events events;  // set before start()

  // Made by the steps, in this order.
  std::optional<slot> place;
  std::shared_ptr<spool_dir> spool;
  std::shared_ptr<command_log> log;
  sys::unique_fd pidfd;   // of aether
  sys::unique_fd socket;  // of its channel, until that is opened
  std::shared_ptr<aether_channel> channel;

  /// Runs all steps; a failing one has everything before it undone.
  base::result<void> start();
  /// For a sandbox that never ran a command: undoes all, spools included, and fails with `why`.
  base::result<void> abandon(base::error why);
  /// Undoes the steps in reverse. Goes on after errors and reports all; what failed is tried again
  /// by the next call.
  base::result<void> stop();

  /// Finds spools and log in the sandbox's directory.
  void open_spool();
  /// In place of start(): a living sandbox of an earlier dsecd, as if all steps had been run here.
  void take_over(slot s, sys::unique_fd aether, sys::unique_fd channel_end);
  /// Opens the channel of one that was taken over; events arrive from now on.
  base::result<void> reconnect();

  /// The launcher has reaped aether.
  void note_exit(int status);
  /// What a new launcher needs to know of it; nullopt while there is no aether.
  std::optional<survivor> describe();

  /// The open channel, or nullptr.
  std::shared_ptr<aether_channel> open_channel();

  std::array<bool, start_step_count> done{};
  std::mutex mutex;  // guards what follows, and place, pidfd, socket and channel
  std::condition_variable exited;
  std::optional<int> exit_status;  // of aether
  bool leaving = false;            // being killed: no new launcher needs to hear of it
};

}  // namespace dsec::container
