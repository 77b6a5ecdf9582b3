// Slots: the namespaces of a sandbox made ahead of it and held by descriptor until a sandbox is
// made of them, after which the living aether keeps them. The user namespace belongs to the slot's
// aether uid, so that aether may join it without a capability; net, uts and ipc belong to the user
// namespace, so that root inside rules them.
#pragma once

#include <cstdint>
#include <map>

#include "guest/launcher/fd.hpp"
#include "guest/launcher/status.hpp"

namespace dsec::launcher {

struct slot {
  fd user, net, uts, ipc;
  std::uint32_t uid_base = 0;
  std::uint32_t aether_uid = 0;
};

class slot_table {
 public:
  /// Takes the place of an unused slot of that number: its maker did not hear of it, or could not
  /// say that it is not wanted any more.
  status make(std::uint32_t number, std::uint32_t uid_base, std::uint32_t aether_uid);
  /// Closes its namespaces. ENOENT when it is not there.
  status drop(std::uint32_t number);
  slot* find(std::uint32_t number);

 private:
  std::map<std::uint32_t, slot> slots_;
};

}  // namespace dsec::launcher
