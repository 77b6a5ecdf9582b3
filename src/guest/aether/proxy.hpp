// aether itself: PID 1 of the sandbox. One loop over the channel, the spawner, signals, status
// pipes and output; nothing in it waits for anything that root inside controls. All state is in
// static tables (guest/channel.hpp says what is promised to dsecd). Files: proxy.cpp loop and time,
// proxy_messages.cpp what dsecd says, proxy_start.cpp from exec to program, proxy_end.cpp from
// death to result.
#pragma once

#include "guest/aether/channel_link.hpp"
#include "guest/aether/groups.hpp"
#include "guest/aether/live_command.hpp"
#include "guest/aether/poller.hpp"

namespace dsec::guest::aether {

/// How aether's own process ends; the launcher sees it.
enum exit_code : int {
  exit_channel_closed = 0,    // launcher and dsecd are both gone
  exit_no_boot = 2,           // the first datagram was not a boot of a version we speak
  exit_no_kernel_object = 3,  // epoll, signalfd
  exit_no_spawner = 4,        // plus the spawner's own step: 4 + step
};

class proxy {
 public:
  [[noreturn]] void run(const boot_body& boot);

 private:
  // proxy.cpp
  void open_event_sources();
  void dispatch(token t, uint32_t events);
  void after_batch();
  int timeout_ms();
  void on_time(uint64_t now);
  void on_command_time(live_command& c, uint64_t now);
  void on_spawner(uint32_t events);
  [[noreturn]] void leave();

  // proxy_messages.cpp
  void on_channel(uint32_t events);
  void on_datagram(datagram& d);
  void on_hello(const datagram& d);
  void on_exec(datagram& d);
  void on_kill(const datagram& d);
  void on_query(const datagram& d);
  void on_forget(const datagram& d);
  void on_kill_all();
  void tell_state(known_command& k);
  enum class reason { asked, time };
  void kill(live_command& c, reason why);
  void kill_group(live_command& c);
  void refuse(const exec_body& e, failure why, int32_t number);
  /// For messages that no live command has been promised room for.
  template <class body>
  uint32_t answer(msg type, const body& b) {
    return channel_.post(type, b, 2 * live_.count());
  }

  // proxy_start.cpp
  void accept(datagram& d, const exec_body& e, known_command& k, live_command& c);
  void launch(live_command& c, const char* strings);
  long hand_over(live_command& c, const char* strings);
  void watch_start(live_command& c, uint64_t now);
  void serve_queue();
  void read_status(live_command& c);
  void mark_started(live_command& c);
  void start_fails(live_command& c, failure why, int32_t number);
  void on_start_limit(live_command& c, uint64_t now);

  // proxy_end.cpp
  void reap();
  void on_reaped(int pid, int status);
  void on_output(live_command& c, int stream);
  void drain(live_command& c);
  void end_or_drain(live_command& c);
  void finish(live_command& c);
  bool out_of_memory(const live_command& c);
  uint64_t oom_kills_of_all() const;

  // What an idle sandbox has used of this is memory that it holds: small members first, tables
  // last, and in them what is always used before the entries, of which the first are used first.
  boot_body boot_ = {};
  poller events_;
  unique_fd signals_;
  bool channel_writable_wanted_ = false;
  bool hello_said_ = false;  // said once the spawner is ready
  bool reap_again_ = false;
  spawner_link spawner_;
  groups groups_;
  live_commands live_;
  channel_link channel_;
  known_commands known_;
};

}  // namespace dsec::guest::aether
