#include "actors/output.hpp"

#include <optional>
#include <utility>

namespace dsec::actors {

base::result<std::string> read_stream(backends::instance& instance, const std::string& command_id,
                                      backends::stream which, std::uint64_t total,
                                      std::uint64_t limit) {
  std::string out;
  std::uint64_t at = 0;
  while (at < total && out.size() < limit) {
    DSEC_TRY(auto piece, instance.read_output(command_id, which, at, limit - out.size(), total));
    if (piece.data.empty()) break;
    at = piece.offset + piece.data.size();
    if (out.empty()) {
      out = std::move(piece.data);
    } else {
      out += piece.data;
    }
  }
  return out;
}

base::result<backends::output_piece> read_lost_output(backends::instance& instance,
                                                      const std::string& command_id,
                                                      backends::stream which, std::uint64_t cap,
                                                      std::uint64_t offset, std::uint64_t length) {
  DSEC_TRY(const auto last, instance.read_output(command_id, which, cap - 1, 1, cap));
  std::optional<std::uint64_t> total;
  if (last.data.empty()) total = cap;  // reading ends where the file does
  if (total && offset >= *total) return backends::output_piece{{}, offset};
  return instance.read_output(command_id, which, offset, length, total);
}

base::result<command_output> read_kept_output(backends::instance& instance, const command& c,
                                              std::uint64_t limit) {
  command_output output;
  DSEC_TRY(output.out,
           read_stream(instance, c.id, backends::stream::out, c.exit.stdout_total, limit));
  DSEC_TRY(output.err,
           read_stream(instance, c.id, backends::stream::err, c.exit.stderr_total, limit));
  return output;
}

}  // namespace dsec::actors
