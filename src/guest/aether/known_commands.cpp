// Table of command ids (known_commands.hpp).
#include "guest/aether/known_commands.hpp"

namespace dsec::guest::aether {
namespace {

uint64_t hash_of(const char (&id)[max_command_id]) {
  uint64_t h = 0xcbf29ce484222325U;  // FNV-1a
  for (const char c : id) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return h;
}

bool ended(const known_command& k) {
  return k.state == command_state::failed || k.state == command_state::exited;
}

}  // namespace

known_command* known_commands::find(const char (&id)[max_command_id]) {
  const uint64_t h = hash_of(id);
  for (int i = 0; i < used_; ++i) {
    known_command& k = entries_[i];
    if (hashes_[i] == h && k.state != command_state::none &&
        __builtin_memcmp(k.id.id, id, max_command_id) == 0) {
      return &k;
    }
  }
  return nullptr;
}

int known_commands::room(uint32_t acknowledged) {
  for (int i = 0; i < used_; ++i) {
    if (entries_[i].state == command_state::none) return i;
  }
  if (used_ < capacity) return used_++;
  int oldest = -1;
  for (int i = 0; i < capacity; ++i) {
    const known_command& k = entries_[i];
    if (ended(k) && k.seq <= acknowledged && (oldest < 0 || k.seq < entries_[oldest].seq))
      oldest = i;
  }
  return oldest;
}

known_command* known_commands::add(const char (&id)[max_command_id], uint32_t acknowledged) {
  const int i = room(acknowledged);
  if (i < 0) return nullptr;
  hashes_[i] = hash_of(id);
  known_command& k = entries_[i];
  k = {};
  k.state = command_state::pending;
  copy_bytes(k.id.id, id, max_command_id);
  return &k;
}

void known_commands::forget(known_command& k) {
  k.state = command_state::none;
}

}  // namespace dsec::guest::aether
