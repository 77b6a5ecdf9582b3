// Making one sandbox: named steps, each with its undo, in one list (create.cpp). The launcher's
// thread.
#pragma once

#include <span>
#include <vector>

#include "guest/launch.hpp"
#include "guest/launcher/init.hpp"
#include "guest/launcher/layers.hpp"
#include "guest/launcher/overlay.hpp"
#include "guest/launcher/sandboxes.hpp"
#include "guest/launcher/slots.hpp"

namespace dsec::launcher {

/// What a sandbox is made with; outlives every creation.
struct workshop {
  layer_table& layers;
  slot_table& slots;
  sandbox_table& sandboxes;
  int template_ns;
  bool detached_overlays;
  bool oom_scores;
};

class creation {
 public:
  /// `fds` are the request's, in the order of launch_create.
  creation(const workshop& shop, const guest::launch_create& request, std::span<const fd> fds)
      : shop_(shop), request_(request), fds_(fds) {}
  ~creation();
  creation(const creation&) = delete;
  creation& operator=(const creation&) = delete;

  /// On failure everything is as before, and failed_step() names the step. The destructor does what
  /// the requester need not wait for.
  status run();
  /// After success: what can be taken down later.
  void leave(leavings& rest);
  [[nodiscard]] const char* failed_step() const { return failed_step_; }
  /// After success: its entry in the table.
  [[nodiscard]] sandbox_table::map::value_type& entry() const { return *entry_; }

 private:
  struct step {
    const char* name;
    status (creation::*run)();
    void (creation::*undo)();
  };
  static const step steps[];

  status check();
  status hold_layers();
  void release_layers();
  status take_slot();
  status map_upper();
  void drop_upper();
  status build_overlay();
  void drop_overlay();
  status clone_sys();
  void drop_sys();
  status open_channel();
  void close_channel();
  status start();
  void kill();
  status record();
  void unrecord();

  [[nodiscard]] std::span<const fd> init_tasks() const;
  [[nodiscard]] std::span<const fd> cmd_tasks() const;
  status place_fds(reserved_fds& reserved);

  const workshop& shop_;
  const guest::launch_create& request_;
  std::span<const fd> fds_;
  const char* failed_step_ = "";

  std::vector<layer*> layers_;
  slot* slot_ = nullptr;
  fd upper_;
  overlay overlay_;
  fd sys_;
  fd channel_, aether_channel_;
  init_result init_;
  sandbox_table::map::value_type* entry_ = nullptr;
};

/// [a-z0-9-]: it becomes part of a path.
bool valid_sandbox_id(const char* id);

}  // namespace dsec::launcher
