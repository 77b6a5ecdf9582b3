// The open streams of one connection: what each is of, how far it has come, what it may still send.
// Each asks for one piece at a time, and for the next one only when the last has gone to the
// socket: so a stream whose client reads slowly holds one piece, and nobody up. Pure; belongs to
// one connection's state.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "proto/client.capnp.h"

namespace dsec::actors {

struct output_source {
  std::string command_id;
  bool err = false;
};
struct file_source {
  std::string path, user;
};

struct stream {
  std::uint64_t id = 0;
  std::uint64_t serial = 0;  // a client may use an id again
  std::string sandbox_id;
  std::variant<output_source, file_source> source;
  std::uint64_t offset = 0;  // of the next byte to be sent
  std::uint64_t credit = 0;
  bool asking = false;   // for a piece
  bool sending = false;  // one that is not written yet
  unsigned losses = 0;   // of the actor that was asked, one after the other

  [[nodiscard]] bool may_ask() const { return credit > 0 && !asking && !sending; }
  /// What the next piece may have.
  [[nodiscard]] std::uint32_t next_length() const;
};

class stream_table {
 public:
  /// errc::already_exists, capacity, invalid_argument, unsupported (a source that is not known).
  base::result<stream*> open(proto::OpenStream::Reader asked);
  /// More credit. errc::not_found, invalid_argument when it becomes too much.
  base::result<stream*> add_credit(std::uint64_t id, std::uint64_t bytes);
  /// It is not there any more: the stream as it was. errc::not_found.
  base::result<stream> close(std::uint64_t id);

  /// nullptr when it was closed, also if its id was used again.
  stream* find(std::uint64_t id, std::uint64_t serial);
  /// What was asked for it is answered: the stream, if it is still open.
  stream* answered(std::uint64_t id, std::uint64_t serial);
  /// It has nothing more to send; its last piece, or an answer, may still be on its way.
  void end(const stream& s);
  /// A piece was written: the stream that may go on, if it is still open.
  stream* written(std::uint64_t id, std::uint64_t serial);
  /// All are closed.
  std::vector<stream> close_all();

 private:
  base::result<stream*> known(std::uint64_t id);

  std::unordered_map<std::uint64_t, stream> open_;
  // Of ended ones, by serial: what is not written yet, and who is still asked.
  std::unordered_set<std::uint64_t> last_pieces_, unanswered_;
  std::uint64_t last_serial_ = 0;
};

}  // namespace dsec::actors
