// The container backend (docs: src/backends/container/README.md). Owned by whoever wires the
// worker, which holds the state directory's lock. Thread-safe; open(), probe(), start() and close()
// block.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "backends/container/leftovers.hpp"
#include "backends/container/sandbox_host.hpp"

namespace dsec::container {

class container_backend final : public backends::backend {
 public:
  /// Makes the control groups; takes over the launcher that an earlier run left, with all that it
  /// holds, else starts one. Nothing is ended yet: end_unrecovered() must be called before start().
  /// A launcher that does not answer is waited for up to a minute; when opening fails all that an
  /// earlier run left is as it was.
  static base::result<std::unique_ptr<container_backend>> open(const base::paths& where,
                                                               const base::node_config& node,
                                                               const base::sandbox_config& defaults,
                                                               const failure_areas& areas = {});
  /// Ends all that an earlier run left, living sandboxes too, and asks nobody: processes by their
  /// groups, and any launcher, whatever it does and of whatever version it is. The caller sees to
  /// it that no dsecd holds the state directory. Goes on after errors and reports all.
  static base::result<void> end_everything(const base::paths& where, const base::node_config& node,
                                           const base::sandbox_config& defaults);
  /// close(), with errors logged. All instances must be gone. Before end_unrecovered() it leaves
  /// what it took over.
  ~container_backend() override;
  container_backend(const container_backend&) = delete;
  container_backend& operator=(const container_backend&) = delete;

  [[nodiscard]] std::string name() const override { return "container"; }
  std::vector<backends::probe_item> probe() override;
  base::result<std::unique_ptr<backends::instance>> start(const backends::start_spec& spec,
                                                          backends::event_sink sink) override;
  base::result<backends::recovered> recover(const backends::start_spec& spec,
                                            backends::event_sink sink) override;
  base::result<void> end_unrecovered() override;
  void leave() override;
  void refill() override;
  [[nodiscard]] backends::backend_stats stats() const override;

  /// Whether sandboxes of an earlier run live that nobody has taken over yet.
  [[nodiscard]] bool inherits_living() const { return host_->left.any_alive(); }

  /// Ends the launcher and removes everything that this instance has on the host but records.
  /// errc::wrong_phase while sandboxes live; goes on after errors and reports all. After leave() it
  /// lets go of everything instead. No start succeeds afterwards. Idempotent.
  base::result<void> close();

 private:
  container_backend(std::unique_ptr<sandbox_host> host, base::node_config node)
      : host_(std::move(host)), node_(std::move(node)), leftovers_(*host_) {}

  static base::result<std::unique_ptr<container_backend>> make(const base::paths& where,
                                                               const base::node_config& node,
                                                               const base::sandbox_config& defaults,
                                                               const failure_areas& areas);
  base::result<void> take_over();
  base::result<void> end_by_groups();
  void let_go();
  base::result<void> remove_all();

  std::unique_ptr<sandbox_host> host_;
  const base::node_config node_;
  leftovers leftovers_;
  std::mutex mutex_;
  std::condition_variable idle_;
  unsigned starting_ = 0;
  bool inherited_ = true;  // what there is may be an earlier run's: true until that is known
  bool closed_ = false;
};

}  // namespace dsec::container
