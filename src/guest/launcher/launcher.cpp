#include "guest/launcher/launcher.hpp"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "guest/launcher/instrument.hpp"
#include "guest/launcher/log.hpp"

namespace dsec::launcher {
namespace {

// Tags of the two sockets in the epoll set; every other tag is an entry of the sandbox table.
char listening_tag, connection_tag;

template <std::size_t N>
bool terminated(const char (&text)[N]) {
  return memchr(text, '\0', N) != nullptr;
}

bool terminated(const guest::launch_create& c) {
  for (const auto& name : c.layer) {
    if (!terminated(name)) return false;
  }
  return terminated(c.sandbox) && terminated(c.hostname);
}

bool terminated(const guest::launch_adopt& a) {
  for (const auto& name : a.layer) {
    if (!terminated(name)) return false;
  }
  return terminated(a.sandbox);
}

fd make_epoll() {
  fd made(sys::call(SYS_epoll_create1, EPOLL_CLOEXEC));
  if (const long kept = made.valid() ? made.keep() : made.get(); kept < 0) return fd(kept);
  return made;
}

template <class T>
T answer(const request& r, guest::launch type) {
  T datagram{};
  datagram.h = {static_cast<std::uint32_t>(type), r.header().req};
  return datagram;
}

}  // namespace

launcher::launcher(fd listening, holdings held)
    : epoll_(make_epoll()),
      server_(std::move(listening)),
      held_(std::move(held)),
      sandboxes_(epoll_.get()),
      shop_{layers_,         slots_, sandboxes_, held_.template_ns.get(), held_.detached_overlays,
            held_.oom_scores} {}

status launcher::watch(int descriptor, void* tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = tag;
  LAUNCH_TRY("epoll", sys::call(SYS_epoll_ctl, epoll_.get(), EPOLL_CTL_ADD, descriptor, &event));
  return {};
}

status launcher::run() {
  LAUNCH_TRY("epoll", epoll_.get());
  if (status s = watch(server_.listening(), &listening_tag); !s.ok()) return s;
  while (running_) {
    // One event at a time: handling it may remove what the next one is about.
    epoll_event event{};
    const int patience = leavings_.empty() ? -1 : leavings::idle_ms;
    const long n = sys::call(SYS_epoll_wait, epoll_.get(), &event, 1, patience);
    if (n == -EINTR) continue;
    LAUNCH_TRY("epoll wait", n);
    if (n == 0 || leavings_.full()) leavings_.sweep();
    if (n == 0) continue;
    if (event.data.ptr == &listening_tag) {
      take_connection();
    } else if (event.data.ptr == &connection_tag) {
      serve_connection();
    } else {
      aether_ended(*static_cast<sandbox_table::map::value_type*>(event.data.ptr));
    }
  }
  return {};
}

void launcher::take_connection() {
  if (!server_.accept()) return;
  if (status s = watch(server_.connection(), &connection_tag); !s.ok()) {
    log_warn("connection_refused", "", s);
    server_.disconnect();
  }
}

void launcher::serve_connection() {
  request r;
  if (server_.receive(r)) handle(r);
}

void launcher::aether_ended(sandbox_table::map::value_type& entry) {
  auto& [id, s] = entry;
  sandboxes_.reap(s);
  if (!s.exited) return;
  log_info("sandbox_ended", id.c_str());
  guest::launch_exited event{};
  event.h.type = static_cast<std::uint32_t>(guest::launch::exited);
  strncpy(event.sandbox, id.c_str(), sizeof event.sandbox - 1);
  event.status = s.status;
  server_.send(&event, sizeof event);
}

void launcher::handle(request& r) {
  using guest::launch;
  switch (static_cast<launch>(r.header().type)) {
    case launch::hello:
      return hello(r);
    case launch::attach_layer:
      return reply(r, attach_layer(r));
    case launch::detach_layer:
      return reply(r, detach_layer(r));
    case launch::make_slot:
      return reply(r, make_slot(r));
    case launch::drop_slot:
      return reply(r, drop_slot(r));
    case launch::create:
      return create(r);
    case launch::adopt:
      return reply(r, adopt(r));
    case launch::release:
      return reply(r, release(r));
    case launch::list:
      return list(r);
    case launch::shutdown:
      return reply(r, shutdown());
    default:
      return reply(r, {"unknown request", ENOSYS});
  }
}

void launcher::reply(const request& r, status s, const char* step) {
  auto result = answer<guest::launch_result>(r, guest::launch::done);
  result.sys_errno = s.error;
  if (!s.ok()) {
    snprintf(result.step, sizeof result.step, "%s%s%s", step == nullptr ? "" : step,
             step == nullptr ? "" : ": ", s.what);
  }
  server_.send(&result, sizeof result);
}

void launcher::hello(const request& r) {
  auto mine = answer<guest::launch_hello>(r, guest::launch::hello);
  mine.version = guest::launch_version;
  mine.pid = static_cast<std::int32_t>(sys::call(SYS_getpid));
  mine.sandboxes = sandboxes_.live();
  server_.send(&mine, sizeof mine, {held_.layers_ns.get()});
}

status launcher::attach_layer(const request& r) {
  const auto* body = r.as<guest::launch_layer>();
  if (body == nullptr || !terminated(body->name) || r.fd_count != 1) return {"malformed", EINVAL};
  const bool known = layers_.find(body->name) != nullptr;
  status s = layers_.attach(body->name, r.fds[0].get());
  if (s.ok() && !known) log_info("layer_attached", body->name);
  return s;
}

status launcher::detach_layer(const request& r) {
  const auto* body = r.as<guest::launch_layer>();
  if (body == nullptr || !terminated(body->name)) return {"malformed", EINVAL};
  leavings_.sweep();  // copies of it may be among them
  status s = layers_.detach(body->name);
  if (s.ok()) log_info("layer_detached", body->name);
  return s;
}

status launcher::make_slot(const request& r) {
  const auto* body = r.as<guest::launch_slot>();
  if (body == nullptr) return {"malformed", EINVAL};
  if (sandboxes_.uses_slot(body->slot)) return {"in use", EBUSY};
  return slots_.make(body->slot, body->uid_base, body->aether_uid);
}

status launcher::drop_slot(const request& r) {
  const auto* body = r.as<guest::launch_slot>();
  return body == nullptr ? status{"malformed", EINVAL} : slots_.drop(body->slot);
}

void launcher::create(const request& r) {
  const auto* body = r.as<guest::launch_create>();
  if (body == nullptr || !terminated(*body)) return reply(r, {"malformed", EINVAL});
  creation work(shop_, *body, r.descriptors());
  const status made = work.run();
  if (!made.ok()) return reply(r, made, work.failed_step());
  auto& entry = work.entry();
  auto result = answer<guest::launch_result>(r, guest::launch::done);
  server_.send(&result, sizeof result, {entry.second.channel.get(), entry.second.pidfd.get()});
  work.leave(leavings_);
  log_info("sandbox_created", body->sandbox);
  log_step_times();
}

status launcher::adopt(request& r) {
  const auto* body = r.as<guest::launch_adopt>();
  if (body == nullptr || !terminated(*body) || r.fd_count != 2) return {"malformed", EINVAL};
  if (!valid_sandbox_id(body->sandbox) || body->layers > guest::max_layers)
    return {"malformed", EINVAL};
  if (sandboxes_.find(body->sandbox) != nullptr) return {"sandbox", EEXIST};
  std::vector<layer*> held;
  if (status s = layers_.hold(body->layer, body->layers, held); !s.ok()) return s;
  sandbox adopted;
  adopted.slot = body->slot;
  adopted.layers = held;
  adopted.channel = std::move(r.fds[0]);
  adopted.pidfd = std::move(r.fds[1]);
  sandbox_table::map::value_type* entry = nullptr;
  status s = sandboxes_.add(body->sandbox, std::move(adopted), entry);
  if (!s.ok()) layer_table::give_back(held);
  return s;
}

status launcher::release(const request& r) {
  const auto* body = r.as<guest::launch_id>();
  if (body == nullptr || !terminated(body->sandbox)) return {"malformed", EINVAL};
  return sandboxes_.release(body->sandbox);
}

void launcher::list(const request& r) {
  for (const auto& [id, s] : sandboxes_.all()) {
    auto entry = answer<guest::launch_listed>(r, guest::launch::listed);
    strncpy(entry.sandbox, id.c_str(), sizeof entry.sandbox - 1);
    entry.slot = s.slot;
    entry.exited = s.exited ? 1 : 0;
    entry.status = s.status;
    server_.send(&entry, sizeof entry, {s.channel.get(), s.pidfd.get()});
  }
  reply(r, {});
}

status launcher::shutdown() {
  if (sandboxes_.live() > 0) return {"sandboxes live", EBUSY};
  running_ = false;
  log_info("launcher_stopping");
  return {};
}

}  // namespace dsec::launcher
