// The channel between dsecd and aether: SOCK_SEQPACKET datagrams, little-endian PODs, one header
// each. Freestanding: shared by dsecd, launcher and aether, includes no libc header beyond
// <stdint.h>/<stddef.h>.
//
// First datagram on a fresh channel: `boot`, sent by the launcher to aether. Then dsecd and aether
// speak. Numbering: every side numbers what it sends from 1 (`seq`) and says in each datagram the
// highest number it has received (`ack`). What is not acknowledged is kept by aether (results of
// commands) and sent again after `hello`: a new dsecd says hello{last seq it has}, aether answers
// hello and repeats everything after it. A command id that aether knows is never started twice:
// exec of a known id is answered with its state.
// An id is known until `forget`, or until aether needs its place and its end has been acknowledged
// (1,024 ended ones are kept). aether's hello and pong are not numbered (seq 0). Its first hello
// says that the spawner is ready; each hello it gets is answered by one. A message that finds no
// room, because 2,048 are unacknowledged, is tried once with seq 0.
// A command ends when its main process does: whatever it leaves in its group is killed before
// `exited` is sent. One that kill or its time limit meets before exec is `exited` without
// `started`. aether expects its own group id as supplementary group, and a cgroup.procs of the slot
// that this group may write. It leaves empty groups cmd/<n> behind. Where cgroup.kill was once
// written nothing can be cloned into any more on Linux 6.14 and later (cgroup_css_set_fork compares
// the wrong kill count): such groups must be made anew.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "guest/versions.hpp"

namespace dsec::guest {

inline constexpr uint32_t channel_version = 1;
/// aether says its own in its hello. With the launcher, whose boot it checks, it always shares one:
/// they come from the same dsecd.
inline constexpr uint32_t oldest_channel_version = 1;
inline constexpr versions channel_versions{oldest_channel_version, channel_version};
inline constexpr uint32_t max_datagram = 65536;  // bytes, header included
inline constexpr uint32_t max_command_id = 64;   // bytes, without terminator

/// Fixed descriptor numbers aether is exec'ed with; all others are closed.
enum aether_fd : int {
  fd_channel = 3,  // its end of the channel
  fd_userns = 4,   // the inner user namespace, owned by aether's uid
  fd_cgroup =
      5,  // v2 directory of the slot; aether may mkdir in its child `cmd` and write what it makes
  fd_oom = 6,    // memory.oom_control (v1) or memory.events (v2) of `cmd`, O_RDONLY
  fd_tasks = 7,  // 7 .. 7 + boot.tasks_count - 1: v1 `tasks` of the `cmd` groups, O_WRONLY;
                 // commands write "0"
};
inline constexpr uint32_t max_tasks_fds = 8;

/// RLIMIT_CORE of commands, which the launcher arranges for where the host lets it. Below the
/// smallest core file none is written. It is not 0, because that does not count where the host
/// pipes cores to a helper (core(5)), which would then run, as root on the host, for every crash
/// inside; the kernel gives up only at exactly 1 (do_coredump).
inline constexpr uint64_t core_limit = 1;

enum class msg : uint16_t {
  // to aether
  boot = 1,   // boot_body
  hello = 2,  // hello_body; also aether -> dsecd
  exec = 3,   // exec_body, then strings; fds: [stdin, ]stdout spool, stderr spool[, payload memfd]
  kill = 4,   // kill_body: whole group of one command, SIGKILL
  kill_all = 5,  // no body: every command group
  query = 6,     // kill_body (id only): answered with started/exited/unknown
  ping = 7,      // answered with pong
  forget = 8,    // kill_body (id only): result may be dropped (dsecd stored it)
  // from aether
  pong = 32,
  started = 33,   // started_body
  failed = 34,    // failed_body: never started
  exited = 35,    // exited_body
  unknown = 36,   // kill_body: no such command
  degraded = 37,  // no body: the spawner had to be replaced; informational
};

struct header {
  uint16_t type;      // msg
  uint16_t reserved;  // 0
  uint32_t length;    // of the whole datagram, header included
  uint32_t seq;       // of this datagram; 0 for pong, ping and boot (not repeated)
  uint32_t ack;       // highest seq received from the other side
};

/// Where deaths for want of memory are counted.
enum oom_counting : uint32_t {
  oom_by_sandbox = 0,  // fd_oom: memory.oom_control (v1) of `cmd`
  oom_by_group = 1,    // memory.events (v2) of every command's group; fd_oom is that of `cmd`
  oom_nowhere = 2,
};

struct boot_body {
  uint32_t version;       // channel_version
  uint32_t tasks_count;   // number of v1 tasks descriptors from fd_tasks on
  uint32_t oom_v2;        // oom_by_…
  uint32_t nofile;        // RLIMIT_NOFILE of commands (soft = hard)
  int32_t oom_score_adj;  // of commands; set by the spawner on itself before its filter loads
};

struct hello_body {
  uint32_t version;
  uint32_t last_seq;  // highest seq this side has received before (0 = none)
  uint32_t commands;  // aether -> dsecd: commands running
};

/// What a command is: a program, or one of the spawner's own file helpers run with the user's
/// credentials.
/// Helpers: regular files only, no magic links. Until the file is open errors are failed{exec}; an
/// I/O error after `started` makes the exit code that errno, with no size on stderr.
enum class exec_kind : uint32_t {
  program = 0,     // argv
  shell = 1,       // argv[0] is the script: /bin/bash -c, else /bin/sh -c, else failed{no_shell}
  read_file = 2,   // argv[0] = path; the range [offset, offset+length) goes to stdout as it is, and
                   // the file's size as 8 bytes to stderr
  write_file = 3,  // argv[0] = path; stdin is written at offset (0: O_TRUNC), parents are made, new
                   // file gets `mode`; the file's size afterwards as 8 bytes to stderr
};

enum exec_flags : uint32_t {
  exec_no_input = 1,  // no stdin is passed: the command gets the sandbox's own /dev/null
};

struct exec_body {
  char id[max_command_id];  // zero-padded
  uint32_t kind;            // exec_kind
  uint32_t flags;           // enum exec_flags
  uint64_t timeout_ms;      // 0 = none
  uint64_t spool_cap;       // bytes kept per stream; even, >= 4096
  uint64_t offset, length;  // file helpers
  uint32_t mode;            // write_file
  uint32_t argc, envc;  // strings, each NUL-terminated: argv…, envp…, cwd ("" = "/"), user ("" =
                        // root; NAME or UID, with :NAME or :GID). HOME is added from /etc/passwd
                        // when envp has none
  uint32_t strings_length;  // bytes of all strings; they follow here, or in the payload memfd when
                            // payload_fd
  uint32_t payload_fd;      // 1: a 4th descriptor holds the strings (they did not fit)
  uint32_t reserved;
};

struct kill_body {
  char id[max_command_id];
};

struct started_body {
  char id[max_command_id];
  uint64_t start_realtime_ns;
  int32_t pid;  // inside
};

enum class failure : uint32_t {
  exec = 1,  // execve or the open of a file helper: sys_errno
  no_shell = 2,
  bad_user = 3,     // not in /etc/passwd or /etc/group, or not mapped
  bad_cwd = 4,      // sys_errno
  resources = 5,    // clone failed (EAGAIN: pids limit), too many commands (EAGAIN), aether may
                    // open no more files (EMFILE): sys_errno
  bad_request = 6,  // malformed exec
  spawner = 7,      // the spawner died before the program started (ECHILD: it was not executed;
                    // dsecd sends it once more), or it did not start in time (ETIMEDOUT)
};

struct failed_body {
  char id[max_command_id];
  uint32_t failure;  // enum failure
  int32_t sys_errno;
};

enum exited_flags : uint32_t {
  exited_timed_out = 1,
  exited_killed = 2,  // by msg::kill or kill_all
  exited_oom = 4,     // memory ran out: something of its group was killed for it (by_sandbox: it
                      // died of SIGKILL or with 137 while the sandbox's counter went up)
};

struct exited_body {
  char id[max_command_id];
  int32_t status;  // as of wait(2)
  uint32_t flags;
  uint64_t duration_us;
  uint64_t start_realtime_ns;
  uint64_t total[2];  // bytes written to stdout, stderr; more than the cap = truncated (spool.hpp)
};

}  // namespace dsec::guest
