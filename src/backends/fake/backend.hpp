// A backend in memory, for tests of everything above backend.hpp and for simulations: sandbox
// actor, phases, store and edge run unchanged over it. Thread-safe. Events are handed over on the
// thread that causes them (exec, kill, fail, finish) or, for commands that take time, on a timer
// thread.
//
// As with a real one, nobody hears of the commands that ran when a sandbox was stopped or died.
//
// What it does not exercise: anything of the kernel (namespaces, mounts, groups, limits, seccomp),
// real processes and their output pipes, the channel to aether and its resending, spool files on
// disk, users and permissions, the launcher, adoption after a restart, and the time any of this
// takes.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "backends/fake/script.hpp"
#include "backends/fake/timer.hpp"

namespace dsec::fake {

class instance;

class backend final : public backends::backend {
 public:
  explicit backend(script s = {}, std::string name = "container");
  ~backend() override;

  [[nodiscard]] std::string name() const override { return name_; }
  std::vector<backends::probe_item> probe() override;
  base::result<std::unique_ptr<backends::instance>> start(const backends::start_spec& spec,
                                                          backends::event_sink sink) override;
  void refill() override;

  /// The sandbox dies by itself.
  void fail(const std::string& sandbox_id, base::cause why, std::string detail);
  /// Ends a held command.
  void finish(const std::string& sandbox_id, const std::string& command_id, fate f = {});

  /// Instances that were started and not stopped.
  [[nodiscard]] std::size_t live() const;
  /// "start ID", "stop ID", "exec ID COMMAND" … in order; failed steps are not among them.
  [[nodiscard]] std::vector<std::string> steps() const;
  [[nodiscard]] std::size_t refills() const;
  [[nodiscard]] std::vector<backends::start_spec> started() const;

 private:
  friend class instance;
  std::shared_ptr<instance> find(const std::string& sandbox_id) const;
  void note(std::string step);

  script script_;
  std::string name_;
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<instance>> instances_;
  std::vector<std::string> steps_;
  std::vector<backends::start_spec> started_;
  std::size_t refills_ = 0;
  std::shared_ptr<timer> timer_;
};

}  // namespace dsec::fake
