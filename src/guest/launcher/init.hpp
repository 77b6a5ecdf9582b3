// The child that becomes aether: PID 1 of a new pid namespace owned by the host, which joins the
// slot, builds the sandbox's mount tree, gives up everything and executes aether. Runs on the
// launcher's memory while the launcher sleeps; its steps are one list in init.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "guest/launcher/fd.hpp"
#include "guest/launcher/status.hpp"

namespace dsec::launcher {

/// Everything the child needs, as numbers valid in the launcher's table. Aether's image is
/// `image_number`.
struct init_plan {
  int cgroup = -1;            // v2 directory to be cloned into
  std::span<const fd> tasks;  // v1 groups to join by writing "0"
  int template_ns = -1;
  int net = -1, uts = -1, ipc = -1;
  int root = -1, sys = -1;  // overlay and sysfs, detached
  const char* hostname = "";
  std::uint32_t root_id = 0;  // what uid 0 inside is here
  std::uint32_t aether_uid = 0;
  std::uint64_t shm_bytes = 0;
  bool set_oom_score = false;  // this host lets us
};

struct init_result {
  long pid = -1;
  fd pidfd;
};

/// Puts descriptors where aether expects them (guest/channel.hpp: 3, 4, …) for the time of the
/// clone; the destructor takes them away again, since a channel end left here would keep aether
/// from seeing the other's death.
class reserved_fds {
 public:
  /// At start: fills the reserved numbers, so that nothing else lands on them.
  static status reserve();

  reserved_fds() = default;
  reserved_fds(const reserved_fds&) = delete;
  reserved_fds& operator=(const reserved_fds&) = delete;
  ~reserved_fds();
  status place(int number, int source);

 private:
  std::array<bool, static_cast<std::size_t>(end_reserved)> placed_{};
};

/// Answers when aether was executed or nothing is left of the child. `what` names the step.
status start_init(const init_plan& plan, init_result& result);

}  // namespace dsec::launcher
