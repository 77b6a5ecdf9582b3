// What dsecd says, and how it is answered (proxy.hpp, guest/channel.hpp).
#include "guest/aether/proxy.hpp"

namespace dsec::guest::aether {
namespace {

constexpr uint32_t spare_messages = 64;  // for answers that belong to no live command

}  // namespace

void proxy::on_channel(uint32_t events) {
  if ((events & EPOLLOUT) != 0) channel_.flush();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  datagram d;
  switch (channel_.receive(d)) {
    case channel_link::got::closed:
      leave();
    case channel_link::got::datagram:
      return on_datagram(d);
    case channel_link::got::nothing:
    case channel_link::got::malformed:
      return;
  }
}

void proxy::on_datagram(datagram& d) {
  const auto type = static_cast<msg>(d.head.type);
  if (type != msg::hello) {
    channel_.note_received(d.head.seq);
    channel_.acknowledge(d.head.ack);
  }
  switch (type) {
    case msg::hello:
      return on_hello(d);
    case msg::exec:
      return on_exec(d);
    case msg::kill:
      return on_kill(d);
    case msg::kill_all:
      return on_kill_all();
    case msg::query:
      return on_query(d);
    case msg::ping:
      return channel_.say_pong();
    case msg::forget:
      return on_forget(d);
    default:
      return;  // a newer dsecd may say what we do not know
  }
}

void proxy::on_hello(const datagram& d) {
  hello_body hello = {};
  if (!decode_body(d.bytes, d.size, hello)) return;
  channel_.restart(hello.last_seq, d.head.seq);
  if (!hello_said_) return;  // said when the spawner is ready
  channel_.say_hello(live_.count());
}

void proxy::on_exec(datagram& d) {
  exec_body e;
  const exec_check check = decode_exec(d.bytes, d.size, d.fd_count, e);
  if (check == exec_check::nameless) return;
  if (known_command* k = known_.find(e.id); k != nullptr) return tell_state(*k);
  const bool short_of_files = d.fds_lost && d.fd_count < max_channel_fds;
  if (short_of_files) return refuse(e, failure::resources, EMFILE);
  if (d.fds_lost || check != exec_check::ok) return refuse(e, failure::bad_request, EINVAL);

  // Every live command has two messages to come; what has been promised must find room.
  if (channel_.room() < 2 * (live_.count() + 1) + spare_messages) {
    return refuse(e, failure::resources, ENOBUFS);
  }
  live_command* c = live_.take();
  if (c == nullptr) {
    const bool by_files = live_.limit() < live_commands::capacity;
    return refuse(e, failure::resources, by_files ? EMFILE : EAGAIN);
  }
  known_command* k = known_.add(e.id, channel_.acknowledged());
  if (k == nullptr) {
    live_.release(*c);
    return refuse(e, failure::resources, ENOBUFS);
  }
  accept(d, e, *k, *c);
}

void proxy::refuse(const exec_body& e, failure why, int32_t number) {
  failed_body f = {.id = {}, .failure = static_cast<uint32_t>(why), .sys_errno = number};
  copy_bytes(f.id, e.id, sizeof f.id);
  answer(msg::failed, f);
}

void proxy::on_kill(const datagram& d) {
  kill_body body;
  if (!decode_body(d.bytes, d.size, body)) return;
  known_command* k = known_.find(body.id);
  if (k == nullptr) {
    answer(msg::unknown, body);
  } else if (k->state == command_state::pending || k->state == command_state::started) {
    kill(live_.at(k->live), reason::asked);
  }
}

void proxy::on_kill_all() {
  live_.each([&](live_command& c) { kill(c, reason::asked); });
}

void proxy::on_query(const datagram& d) {
  kill_body body;
  if (!decode_body(d.bytes, d.size, body)) return;
  known_command* k = known_.find(body.id);
  if (k == nullptr) {
    answer(msg::unknown, body);
  } else {
    tell_state(*k);
  }
}

void proxy::on_forget(const datagram& d) {
  kill_body body;
  if (!decode_body(d.bytes, d.size, body)) return;
  known_command* k = known_.find(body.id);
  const bool ended =
      k != nullptr && (k->state == command_state::failed || k->state == command_state::exited);
  if (ended) known_.forget(*k);
}

void proxy::tell_state(known_command& k) {
  switch (k.state) {
    case command_state::none:
    case command_state::pending:
      return;  // started or failed is on its way
    case command_state::started:
      answer(msg::started, k.started);
      return;
    case command_state::failed:
      answer(msg::failed, k.failed);
      return;
    case command_state::exited:
      answer(msg::exited, k.exited);
      return;
  }
}

}  // namespace dsec::guest::aether
