#include "actors/stream_table.hpp"

#include <algorithm>
#include <utility>

#include "actors/text_checks.hpp"
#include "proto/limits.hpp"

namespace dsec::actors {
namespace {

using base::errc;
using base::fail;
using source = proto::OpenStream::Source;

std::string named(std::uint64_t id) {
  return "stream " + std::to_string(id);
}

base::result<void> check_credit(std::uint64_t id, std::uint64_t held, std::uint64_t more) {
  if (more <= proto::max_stream_credit && held <= proto::max_stream_credit - more) return {};
  return fail(errc::invalid_argument,
              "the credit of " + named(id) + " would be over the limit of " +
                  std::to_string(proto::max_stream_credit) + " bytes; give more as data comes");
}

base::result<stream> of_output(proto::OutputSource::Reader asked) {
  stream s;
  output_source out;
  DSEC_TRY(s.sandbox_id, text(asked.getSandboxId(), "sandboxId"));
  DSEC_TRY(out.command_id, text(asked.getCommandId(), "commandId"));
  out.err = asked.getStderr();
  s.offset = asked.getOffset();
  s.source = std::move(out);
  return s;
}

base::result<stream> of_file(proto::FileSource::Reader asked) {
  stream s;
  file_source file;
  DSEC_TRY(s.sandbox_id, text(asked.getSandboxId(), "sandboxId"));
  DSEC_TRY(file.path, absolute_path(asked.getPath(), "path"));
  DSEC_TRY(file.user, text(asked.getUser(), "user", 256));
  s.offset = asked.getOffset();
  s.source = std::move(file);
  return s;
}

base::result<stream> described(source::Reader asked) {
  switch (asked.which()) {
    case source::OUTPUT:
      return of_output(asked.getOutput());
    case source::FILE:
      return of_file(asked.getFile());
    default:
      return fail(errc::unsupported, "this server does not know the source of the stream");
  }
}

}  // namespace

std::uint32_t stream::next_length() const {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(credit, proto::stream_piece_bytes));
}

base::result<stream*> stream_table::open(proto::OpenStream::Reader asked) {
  const auto id = asked.getStreamId();
  if (open_.contains(id)) return fail(errc::already_exists, named(id) + " is open already");
  // Streams that have ended count for what they have on its way, or a client that reads nothing, or
  // closes what it has opened, could have any number of them.
  const auto ended = last_pieces_.size() + unanswered_.size();
  if (open_.size() >= proto::max_streams || last_pieces_.size() >= proto::max_streams ||
      open_.size() + ended >= 2 * proto::max_streams) {
    return fail(errc::capacity,
                "a connection has at most " + std::to_string(proto::max_streams) +
                    " streams, and as many that have ended a moment ago; close one, read what "
                    "comes, or open another connection");
  }
  DSEC_CHECK(check_credit(id, 0, asked.getCredit()));
  DSEC_TRY(auto s, described(asked.getSource()));
  if (s.sandbox_id.empty()) return fail(errc::invalid_argument, "sandboxId is missing");
  s.id = id;
  s.serial = ++last_serial_;
  s.credit = asked.getCredit();
  return &open_.emplace(id, std::move(s)).first->second;
}

base::result<stream*> stream_table::known(std::uint64_t id) {
  const auto it = open_.find(id);
  if (it != open_.end()) return &it->second;
  return fail(errc::not_found, named(id) + " is not open; it may have ended");
}

base::result<stream*> stream_table::add_credit(std::uint64_t id, std::uint64_t bytes) {
  DSEC_TRY(auto* s, known(id));
  DSEC_CHECK(check_credit(id, s->credit, bytes));
  s->credit += bytes;
  return s;
}

base::result<stream> stream_table::close(std::uint64_t id) {
  DSEC_TRY(const auto* s, known(id));
  auto closed = *s;
  end(closed);
  return closed;
}

stream* stream_table::find(std::uint64_t id, std::uint64_t serial) {
  const auto it = open_.find(id);
  return it == open_.end() || it->second.serial != serial ? nullptr : &it->second;
}

stream* stream_table::answered(std::uint64_t id, std::uint64_t serial) {
  unanswered_.erase(serial);
  auto* s = find(id, serial);
  if (s != nullptr) s->asking = false;
  return s;
}

void stream_table::end(const stream& s) {
  if (s.sending) last_pieces_.insert(s.serial);
  if (s.asking) unanswered_.insert(s.serial);
  const auto id = s.id;  // `s` may be what is erased
  open_.erase(id);
}

stream* stream_table::written(std::uint64_t id, std::uint64_t serial) {
  last_pieces_.erase(serial);
  auto* s = find(id, serial);
  if (s != nullptr) s->sending = false;
  return s;
}

std::vector<stream> stream_table::close_all() {
  std::vector<stream> all;
  for (auto& [id, s] : std::exchange(open_, {})) all.push_back(std::move(s));
  return all;
}

}  // namespace dsec::actors
