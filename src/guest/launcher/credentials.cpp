#include "guest/launcher/credentials.hpp"

#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sys/prctl.h>

#include "guest/launcher/sys.hpp"

namespace dsec::launcher {
namespace {

struct capability_sets {
  std::uint64_t effective = 0, permitted = 0, inheritable = 0;
};

long get_sets(capability_sets& sets) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  const long answer = sys::call(SYS_capget, &header, data);
  const auto join = [](std::uint32_t low, std::uint32_t high) {
    return low | static_cast<std::uint64_t>(high) << 32U;
  };
  sets.effective = join(data[0].effective, data[1].effective);
  sets.permitted = join(data[0].permitted, data[1].permitted);
  sets.inheritable = join(data[0].inheritable, data[1].inheritable);
  return answer;
}

long set_sets(const capability_sets& sets) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32U); };
  __user_cap_data_struct data[2] = {
      {low(sets.effective), low(sets.permitted), low(sets.inheritable)},
      {high(sets.effective), high(sets.permitted), high(sets.inheritable)}};
  return sys::call(SYS_capset, &header, data);
}

}  // namespace

without_capability::without_capability(int capability) {
  capability_sets sets;
  if (get_sets(sets) < 0) return;
  const std::uint64_t bit = 1ULL << static_cast<unsigned>(capability);
  if ((sets.effective & bit) == 0) return;
  saved_ = sets.effective;
  sets.effective &= ~bit;
  changed_ = set_sets(sets) == 0;
}

without_capability::~without_capability() {
  if (!changed_) return;
  capability_sets sets;
  get_sets(sets);
  sets.effective = saved_;
  set_sets(sets);
}

status drop_inheritance() {
  for (int c = 0; c < 64; ++c) {
    const long answer = sys::call(SYS_prctl, PR_CAPBSET_DROP, c, 0, 0, 0);
    if (answer == -EINVAL) break;  // past the last capability of this kernel
    LAUNCH_TRY("bounding set", answer);
  }
  LAUNCH_TRY("ambient set",
             sys::call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
  capability_sets sets;
  LAUNCH_TRY("capget", get_sets(sets));
  sets.inheritable = 0;
  LAUNCH_TRY("capset", set_sets(sets));
  return {};
}

status seal_keyring() {
  const long keyring = sys::call(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
  if (keyring == -ENOSYS) return {};  // a kernel without keys
  LAUNCH_TRY("keyring", keyring);
  LAUNCH_TRY("keyring", sys::call(SYS_keyctl, KEYCTL_SETPERM, keyring, 0));
  return {};
}

status become_unprivileged(std::uint32_t id) {
  LAUNCH_TRY("setgroups", sys::call(SYS_setgroups, 1, &id));
  LAUNCH_TRY("setresgid", sys::call(SYS_setresgid, id, id, id));
  LAUNCH_TRY("setresuid", sys::call(SYS_setresuid, id, id, id));
  LAUNCH_TRY("capset", set_sets({}));
  return {};
}

}  // namespace dsec::launcher
