#include "guest/launcher/create.hpp"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "guest/channel.hpp"
#include "guest/launcher/child.hpp"
#include "guest/launcher/instrument.hpp"
#include "guest/launcher/mounts.hpp"
#include "guest/launcher/namespaces.hpp"

namespace dsec::launcher {
namespace {

// Positions in the request's descriptors.
constexpr std::size_t upper_fd = 0, init_cgroup_fd = 1, slot_cgroup_fd = 2, oom_fd = 3;
constexpr int channel_buffer = 1 << 20;  // bytes that may wait for a dsecd that restarts
constexpr std::int32_t command_oom_score = 200;

status send_boot(const fd& channel, const guest::launch_create& request) {
  struct {
    guest::header header;
    guest::boot_body body;
  } boot{};
  boot.header.type = static_cast<std::uint16_t>(guest::msg::boot);
  boot.header.length = sizeof boot;
  boot.body.version = guest::channel_version;
  boot.body.tasks_count = request.cmd_tasks;
  boot.body.oom_v2 = request.oom_v2;
  boot.body.nofile = request.nofile;
  boot.body.oom_score_adj = command_oom_score;
  LAUNCH_TRY("boot", sys::call(SYS_sendto, channel.get(), &boot, sizeof boot,
                               MSG_NOSIGNAL | MSG_DONTWAIT, nullptr, 0));
  return {};
}

bool same_file(const fd& a, const fd& b) {
  struct stat x {
  }, y{};
  return sys::call(SYS_fstat, a.get(), &x) == 0 && sys::call(SYS_fstat, b.get(), &y) == 0 &&
         x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

}  // namespace

constexpr creation::step creation::steps[] = {
    {"request", &creation::check, nullptr},
    {"layers", &creation::hold_layers, &creation::release_layers},
    {"slot", &creation::take_slot, nullptr},
    {"upper", &creation::map_upper, &creation::drop_upper},
    {"overlay", &creation::build_overlay, &creation::drop_overlay},
    {"sys", &creation::clone_sys, &creation::drop_sys},
    {"channel", &creation::open_channel, &creation::close_channel},
    {"init", &creation::start, &creation::kill},
    {"record", &creation::record, &creation::unrecord},
};

status creation::run() {
  std::size_t done = 0;
  status result;
  for (const step& each : steps) {
    const step_timer timer(each.name);
    result = (this->*each.run)();
    if (result.ok()) {
      ++done;
      result = failpoint(each.name);
    }
    if (!result.ok()) {
      failed_step_ = each.name;
      break;
    }
  }
  if (result.ok()) return result;
  while (done > 0) {
    if (const auto undo = steps[--done].undo; undo != nullptr) (this->*undo)();
  }
  return result;
}

status creation::check() {
  if (!valid_sandbox_id(request_.sandbox)) return {"sandbox", EINVAL};
  if (shop_.sandboxes.find(request_.sandbox) != nullptr) return {"sandbox", EEXIST};
  if (request_.hostname[0] == '\0') return {"hostname", EINVAL};
  if (request_.layers == 0 || request_.layers > guest::max_layers) return {"layers", EINVAL};
  if (request_.init_tasks > guest::max_tasks_fds || request_.cmd_tasks > guest::max_tasks_fds ||
      request_.oom_v2 > guest::oom_nowhere)
    return {"counts", EINVAL};
  const std::size_t fixed = request_.oom_v2 == guest::oom_nowhere ? oom_fd : oom_fd + 1;
  if (fds_.size() != fixed + request_.init_tasks + request_.cmd_tasks)
    return {"descriptors", EINVAL};
  return {};
}

status creation::hold_layers() {
  return shop_.layers.hold(request_.layer, request_.layers, layers_);
}

void creation::release_layers() {
  layer_table::give_back(layers_);
}

status creation::take_slot() {
  slot_ = shop_.slots.find(request_.slot);
  return slot_ == nullptr ? status{"number", ENOENT} : status{};
}

/// The directory's mount belongs to dsecd's namespace, and a mount of another namespace cannot be
/// cloned; so it is looked up again in ours, and must be the same directory.
status creation::map_upper() {
  char path[128];
  snprintf(path, sizeof path, "/state/sandboxes/%s/upper", request_.sandbox);
  upper_ = clone_mount(AT_FDCWD, path);
  LAUNCH_TRY("clone", upper_.get());
  if (!same_file(upper_, fds_[upper_fd])) return {"another directory", ESTALE};
  LAUNCH_TRY("map ids", map_ids(upper_.get(), slot_->user.get()));
  return {};
}

void creation::drop_upper() {
  // The mark of a volatile overlay (kernel: overlayfs.rst), which would forbid a second try on this
  // upper.
  sys::call(SYS_unlinkat, upper_.get(), "w/work/incompat/volatile/dirty", 0);
  sys::call(SYS_unlinkat, upper_.get(), "w/work/incompat/volatile", AT_REMOVEDIR);
  upper_.reset();
}

status creation::build_overlay() {
  const overlay_parts parts{layers_, upper_.get(), slot_->user.get(), slot_->uid_base};
  status built = overlay_.build(parts, shop_.detached_overlays);
  if (!built.ok()) overlay_.drop();
  return built;
}

void creation::drop_overlay() {
  overlay_.drop();
}

status creation::clone_sys() {
  sys_ = clone_mount(AT_FDCWD, empty_sys_path);
  LAUNCH_TRY("clone", sys_.get());
  return {};
}

void creation::drop_sys() {
  sys_.reset();
}

status creation::open_channel() {
  int ends[2] = {-1, -1};
  LAUNCH_TRY("socketpair",
             sys::call(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
  channel_ = fd(ends[0]);
  aether_channel_ = fd(ends[1]);
  for (const int end : ends) {
    LAUNCH_TRY("buffer", sys::call(SYS_setsockopt, end, SOL_SOCKET, SO_SNDBUFFORCE, &channel_buffer,
                                   sizeof channel_buffer));
  }
  return send_boot(channel_, request_);
}

void creation::close_channel() {
  channel_.reset();
  aether_channel_.reset();
}

std::span<const fd> creation::init_tasks() const {
  return fds_.last(request_.init_tasks + request_.cmd_tasks).first(request_.init_tasks);
}

std::span<const fd> creation::cmd_tasks() const {
  return fds_.last(request_.cmd_tasks);
}

status creation::place_fds(reserved_fds& reserved) {
  const auto place = [&](int number, const fd& source) {
    return reserved.place(number, source.get());
  };
  if (status s = place(guest::fd_channel, aether_channel_); !s.ok()) return s;
  if (status s = place(guest::fd_userns, slot_->user); !s.ok()) return s;
  if (status s = place(guest::fd_cgroup, fds_[slot_cgroup_fd]); !s.ok()) return s;
  if (request_.oom_v2 != guest::oom_nowhere) {
    if (status s = place(guest::fd_oom, fds_[oom_fd]); !s.ok()) return s;
  }
  int number = guest::fd_tasks;
  for (const fd& tasks : cmd_tasks()) {
    if (status s = place(number++, tasks); !s.ok()) return s;
  }
  return {};
}

status creation::start() {
  reserved_fds reserved;
  if (status s = place_fds(reserved); !s.ok()) return s;
  init_plan plan;
  plan.cgroup = fds_[init_cgroup_fd].get();
  plan.tasks = init_tasks();
  plan.template_ns = shop_.template_ns;
  plan.net = slot_->net.get();
  plan.uts = slot_->uts.get();
  plan.ipc = slot_->ipc.get();
  plan.root = overlay_.root().get();
  plan.sys = sys_.get();
  plan.hostname = request_.hostname;
  plan.root_id = slot_->uid_base;
  plan.aether_uid = slot_->aether_uid;
  plan.shm_bytes = request_.shm_bytes;
  plan.set_oom_score = shop_.oom_scores;
  if (status s = start_init(plan, init_); !s.ok()) return s;
  aether_channel_.reset();
  return {};
}

void creation::kill() {
  sys::call(SYS_kill, init_.pid,
            SIGKILL);  // our child and not waited for: the pid cannot be another's
  wait_child(init_.pid);
}

status creation::record() {
  sandbox made;
  made.slot = request_.slot;
  made.layers = layers_;
  made.channel = std::move(channel_);
  made.pidfd = std::move(init_.pidfd);
  made.pid = init_.pid;
  return shop_.sandboxes.add(request_.sandbox, std::move(made), entry_);
}

void creation::unrecord() {
  shop_.sandboxes.erase(request_.sandbox);
  entry_ = nullptr;
}

void creation::leave(leavings& rest) {
  if (!shop_.detached_overlays) return;  // attached ones go with one unmount anyway
  overlay_.leave(rest);
  rest.take(std::move(upper_));
}

creation::~creation() {
  // The slot's namespaces are aether's now.
  if (entry_ != nullptr) [[maybe_unused]]
    const status dropped = shop_.slots.drop(request_.slot);
}

bool valid_sandbox_id(const char* id) {
  const std::size_t length = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-");
  return length > 0 && id[length] == '\0';
}

}  // namespace dsec::launcher
