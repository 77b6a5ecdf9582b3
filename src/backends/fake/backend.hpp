// A backend in memory, for tests of everything above backend.hpp and for simulations: sandbox
// actor, phases, store and edge run unchanged over it. Thread-safe. Events are handed over on the
// thread that causes them (exec, kill, fail, finish, recover) or, for commands that take time, on a
// timer thread.
//
// As with a real one, nobody hears of the commands that ran when a sandbox was stopped or died. The
// sandboxes belong to a host (host.hpp) that outlives the backend: die() is dsecd's kill -9,
// leave() its leaving in order, and another backend over the same host recovers what is there.
//
// What it does not exercise: anything of the kernel (namespaces, mounts, groups, limits, seccomp),
// real processes and their output pipes, the channel to aether (frames that are lost, resent or
// reordered), command logs and spools on disk (torn, full, compacted), users and permissions, the
// launcher's own death, a kill in the middle of a step, and the time any of this takes.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.hpp"
#include "backends/fake/host.hpp"

namespace dsec::fake {

class backend final : public backends::backend {
 public:
  explicit backend(script s = {}, std::string name = "container");
  explicit backend(std::shared_ptr<fake::host> over, std::string name = "container");
  ~backend() override;

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] backends::backend_stats stats() const override { return host_->stats(); }
  std::vector<backends::probe_item> probe() override;
  base::result<std::unique_ptr<backends::instance>> start(const backends::start_spec& spec,
                                                          backends::event_sink sink) override;
  base::result<backends::recovered> recover(const backends::start_spec& spec,
                                            backends::event_sink sink) override;
  base::result<void> end_unrecovered() override;
  void leave() override;
  void refill() override;

  /// What kill -9 of its dsecd is for it: nothing that it or its instances do has any effect from
  /// now on, and they hear nothing more.
  void die();

  [[nodiscard]] const std::shared_ptr<fake::host>& host() const { return host_; }
  [[nodiscard]] std::size_t refills() const { return refills_; }

  void fail(const std::string& sandbox_id, base::cause why, std::string detail) {
    host_->fail(sandbox_id, why, std::move(detail));
  }
  void finish(const std::string& sandbox_id, const std::string& command_id, const fate& f = {}) {
    host_->finish(sandbox_id, command_id, f);
  }
  void write(const std::string& sandbox_id, const std::string& command_id, std::string_view text) {
    host_->write(sandbox_id, command_id, text);
  }
  [[nodiscard]] std::size_t live() const { return host_->live(); }
  [[nodiscard]] std::vector<std::string> steps() const { return host_->steps(); }
  [[nodiscard]] std::vector<backends::start_spec> started() const { return host_->started(); }

  /// What its instances share with it.
  struct tie {
    std::atomic<bool> dead{false};
    std::atomic<bool> leaving{false};
  };

 private:
  std::shared_ptr<fake::host> host_;
  std::string name_;
  std::shared_ptr<tie> tie_ = std::make_shared<tie>();
  std::atomic<std::size_t> refills_{0};
  enum class rest { not_asked_for, stays, ended };
  std::atomic<rest> leftovers_{rest::not_asked_for};
};

}  // namespace dsec::fake
