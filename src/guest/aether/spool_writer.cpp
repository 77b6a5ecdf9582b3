// From pipe to spool (spool_writer.hpp).
#include "guest/aether/spool_writer.hpp"

namespace dsec::guest::aether {
namespace {

char buffer[65536];  // a pipe holds no more by default

/// False: part of it is lost, and the size of the spool says so.
bool store(int spool, spool_layout layout, uint64_t position, const char* from, size_t n) {
  while (n > 0) {
    const uint64_t room = layout.contiguous(position);
    const size_t piece = n < room ? n : static_cast<size_t>(room);
    size_t done = 0;
    while (done < piece) {
      const long r =
          sys::pwrite(spool, from + done, piece - done, layout.file_offset(position) + done);
      if (r <= 0) {
        // Filled, it would look as if it had everything; and its second half is no beginning.
        if (position >= layout.cap) sys::truncate(spool, layout.half());
        return false;
      }
      done += static_cast<size_t>(r);
    }
    position += piece;
    from += piece;
    n -= piece;
  }
  return true;
}

}  // namespace

output_stream::progress output_stream::pump(uint64_t cap) {
  if (!pipe) return progress::ended;
  const long n = sys::read(pipe.get(), buffer, sizeof buffer);
  if (n == -EAGAIN || n == -EINTR) return progress::nothing;
  if (n <= 0) {
    pipe.reset();
    return progress::ended;
  }
  if (!cut) cut = !store(spool.get(), spool_layout{cap}, total, buffer, static_cast<size_t>(n));
  total += static_cast<uint64_t>(n);
  return progress::data;
}

}  // namespace dsec::guest::aether
