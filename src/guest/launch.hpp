// The protocol between dsecd and the launcher: SOCK_SEQPACKET on <state>/launcher.sock (0600, peer
// must be root), one request datagram, one reply datagram with the same `req`, in order; `exited`
// events in between. Freestanding PODs like channel.hpp. Strings are zero-padded. Several dsecd
// connections at once are refused (the newest wins: a restarted dsecd must not wait for the old
// one's socket to time out).
//
// Start: dsecd executes the embedded image (base/embedded.hpp) from a memfd in a session of its
// own, as
//   launcher LISTEN_FD STATE_FD AETHER_FD [LAYERS_FD]
// with these descriptors inherited (no O_CLOEXEC) and nothing else but stdin, stdout and stderr
// (its log):
//   LISTEN_FD  the bound and listening socket
//   STATE_FD   the state directory, O_DIRECTORY
//   AETHER_FD  the sealed memfd of aether, mode 0111, opened O_RDONLY with no writer left (else
//              exec says ETXTBSY)
//   LAYERS_FD  the layers' namespace of a launcher that died, from its hello: entered instead of
//              making one
// Sandboxes of the dead launcher are then told to the new one by `adopt`.
#pragma once

#include <stdint.h>

#include "guest/versions.hpp"

namespace dsec::guest {

inline constexpr uint32_t launch_version = 1;
/// The launcher says its own in its hello; dsecd speaks that one with it, or leaves it alone.
/// Raised whenever channel_version is, so that a dsecd too old for the guests it finds knows it
/// before it has taken one over.
inline constexpr uint32_t oldest_launch_version = 1;
inline constexpr versions launch_versions{oldest_launch_version, launch_version};
inline constexpr uint32_t max_layers = 32;
inline constexpr uint32_t launch_id_bytes = 64;

enum class launch : uint32_t {
  hello = 1,  // -> launch_hello; reply launch_hello; fd: the layers' mount namespace
  // launch_layer; fd: the blob, O_RDONLY. Mounts it (read-only EROFS: file-backed, else on a loop
  // device) at layers/<name> in the launcher's namespace. Idempotent.
  attach_layer = 2,
  detach_layer = 3,  // launch_layer
  // launch_slot: namespaces of a slot, held by fd until create or drop_slot; replaces an unused
  // slot of that number
  make_slot = 4,
  drop_slot = 5,  // launch_slot
  create = 6,     // launch_create, see there; reply fds: channel end, pidfd of aether
  release = 7,    // launch_id: forget a sandbox (its aether must be reaped: else EBUSY)
  // no body; replies launch_listed once per sandbox not yet released with fds (channel, pidfd),
  // then `done`
  list = 8,
  shutdown = 9,  // no body: refuse with EBUSY while sandboxes live, else exit after the reply
  // launch_adopt: a live sandbox of a launcher that died; fds: channel end, pidfd of its aether
  adopt = 10,
  done = 16,    // generic reply: launch_result
  listed = 17,  // launch_listed
  exited = 18,  // event: launch_exited: an aether was reaped
};

struct launch_header {
  uint32_t type;
  uint32_t req;  // 0 for events
};

struct launch_hello {
  launch_header h;
  uint32_t version;
  int32_t pid;         // reply: of the launcher
  uint32_t sandboxes;  // reply: live ones
};

struct launch_layer {
  launch_header h;
  char name[128];  // digest in hex
};

struct launch_slot {
  launch_header h;
  uint32_t slot;
  uint32_t uid_base;    // first host uid of the range 0..65535 inside
  uint32_t aether_uid;  // unmapped; also its gid
};

struct launch_id {
  launch_header h;
  char sandbox[launch_id_bytes];
};

/// fds, in order: upper directory (holds u/ and w/), v2 `init` directory (clone target), v2 slot
/// directory, OOM file of `cmd` (opened O_RDONLY; omitted when oom_v2 == 2), then init_tasks v1
/// `tasks` files of the `init` groups and cmd_tasks of the `cmd` groups (O_WRONLY).
struct launch_create {
  launch_header h;
  char sandbox[launch_id_bytes];
  char hostname[launch_id_bytes];
  uint32_t slot;
  uint32_t layers;
  char layer[max_layers][128];  // names of attached layers, bottom first
  uint32_t init_tasks, cmd_tasks;
  uint32_t oom_v2;
  uint32_t nofile;
  uint64_t shm_bytes;
};

struct launch_result {
  launch_header h;
  int32_t sys_errno;  // 0 = done
  char step[48];      // the step that failed, e.g. "overlay: create"
};

struct launch_listed {
  launch_header h;
  char sandbox[launch_id_bytes];
  uint32_t slot;
  uint32_t exited;  // 1: its aether was reaped, status as in launch_exited; 0: it lives
  int32_t status;
};

/// `layer` are counted as used until release, as for create.
struct launch_adopt {
  launch_header h;
  char sandbox[launch_id_bytes];
  uint32_t slot;
  uint32_t layers;
  char layer[max_layers][128];
};

struct launch_exited {
  launch_header h;
  char sandbox[launch_id_bytes];
  int32_t status;  // of aether, as of wait(2); -1 when adopted and so reaped by another process
};

}  // namespace dsec::guest
