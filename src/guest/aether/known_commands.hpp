// Every command id that this aether has seen and not been told to forget, with its latest state: so
// that no id is started twice and any state can be told again. Bounded: the oldest result that
// dsecd has acknowledged makes room. Owned by the proxy; one thread.
#pragma once

#include "guest/aether/decode.hpp"

namespace dsec::guest::aether {

enum class command_state : uint8_t { none, pending, started, failed, exited };

struct known_command {
  command_state state;
  uint32_t seq;   // of the message that told its end; 0 while it has not ended
  uint16_t live;  // index of the live command until it has ended
  union {         // each begins with the id
    kill_body id;
    started_body started;
    failed_body failed;
    exited_body exited;
  };
};

class known_commands {
 public:
  static constexpr int capacity = 256 + 1024;

  known_command* find(const char (&id)[max_command_id]);
  /// Null when the table is full of results that dsecd has not acknowledged.
  known_command* add(const char (&id)[max_command_id], uint32_t acknowledged);
  void forget(known_command& k);

 private:
  int room(uint32_t acknowledged);

  int used_ = 0;  // entries beyond were never used: short scans, few pages
  uint64_t hashes_[capacity] = {};
  known_command entries_[capacity] = {};
};

}  // namespace dsec::guest::aether
