// What outlives a fake backend, as launcher, sandboxes and files outlive dsecd: the sandboxes, what
// happened to them, and how they behave. Several backends may be made over one host, one after the
// other; only the last one hears events. Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.hpp"
#include "backends/fake/script.hpp"
#include "backends/fake/timer.hpp"

namespace dsec::fake {

class sandbox;

class host {
 public:
  explicit host(script s = {}) : script_(std::move(s)) {}
  host(const host&) = delete;
  host& operator=(const host&) = delete;

  // --- for tests ---

  /// The sandbox dies by itself.
  void fail(const std::string& sandbox_id, base::cause why, std::string detail);
  /// Ends a held command.
  void finish(const std::string& sandbox_id, const std::string& command_id, const fate& f = {});
  /// A held command writes to its stdout.
  void write(const std::string& sandbox_id, const std::string& command_id, std::string_view text);
  /// It ends together with the launcher, while no dsecd is there to hear of it.
  void lose(const std::string& sandbox_id);
  /// Nothing of it is left, not even files.
  void vanish(const std::string& sandbox_id);
  /// What happened while no backend was there is told when it is released, not within recover().
  void hold_news(bool on);
  void release_news();

  /// Sandboxes that were started and not ended.
  [[nodiscard]] std::size_t live() const;
  /// Of which anything is left.
  [[nodiscard]] std::size_t known() const;
  /// "start ID", "stop ID", "exec ID COMMAND" … in order; failed steps are not among them. An exec
  /// stands here when it arrived inside.
  [[nodiscard]] std::vector<std::string> steps() const;
  [[nodiscard]] std::vector<backends::start_spec> started() const;
  /// Steps are written down from now on, or not.
  void keep_steps(bool on);
  /// What its backends say that they have counted.
  void count(const backends::backend_stats& stats);

  // --- for backends and sandboxes ---

  [[nodiscard]] const script& behaviour() const { return script_; }
  base::result<void> step(std::string_view what, const std::string& sandbox_id) const;
  std::shared_ptr<sandbox> find(const std::string& sandbox_id) const;
  std::shared_ptr<sandbox> make(const backends::start_spec& spec);
  void remove(const std::string& sandbox_id);
  /// Ends those that are not of this backend and gives them up.
  void end_all_but(const std::shared_ptr<const void>& owner);
  /// It hears nothing any more.
  void detach(const std::shared_ptr<const void>& owner);
  void note(std::string step);
  [[nodiscard]] backends::backend_stats stats() const;
  [[nodiscard]] bool news_held() const;
  void later(std::chrono::milliseconds delay, std::function<void()> call);

 private:
  [[nodiscard]] std::vector<std::shared_ptr<sandbox>> all() const;

  const script script_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<sandbox>> sandboxes_;
  std::vector<std::string> steps_;
  std::vector<backends::start_spec> started_;
  backends::backend_stats stats_;
  bool keep_steps_ = true;
  bool news_held_ = false;
  timer timer_;  // last: its thread uses the rest
};

}  // namespace dsec::fake
