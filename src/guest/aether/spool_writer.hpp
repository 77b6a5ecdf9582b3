// One output stream of a command: reads its pipe without ever waiting and puts the bytes where
// spool_layout says. Everything is counted, whether it can be kept or not; a spool that is shorter
// than the total and the cap has been cut because the disk took no more. Owned by a command; one
// thread.
#pragma once

#include "guest/aether/fd.hpp"
#include "guest/spool.hpp"

namespace dsec::guest::aether {

struct output_stream {
  unique_fd pipe;  // our end, non-blocking; empty once the last writer is gone
  unique_fd
      spool;  // a file of the host; writing it can fail (full disk) but not be held up from inside
  uint64_t total = 0;
  bool cut = false;  // the spool did not take all: it holds the beginning, and nothing more is
                     // written to it, so that it has no gap

  enum class progress { data, nothing, ended };
  /// Moves at most one buffer full.
  progress pump(uint64_t cap);
};

}  // namespace dsec::guest::aether
