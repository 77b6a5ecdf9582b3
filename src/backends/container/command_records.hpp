// The records of a sandbox's command log (command_log.hpp) as bytes: an exec, its end, the end of
// our interest in it. Pure, any thread. What is read was written by this or another release and may
// be torn or damaged: log_reader takes nothing for granted (fuzzed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backends/backend.hpp"

namespace dsec::container {

/// Written before the exec is sent.
struct begun_record {
  std::string id;
  backends::exec_kind kind = backends::exec_kind::program;
  std::vector<std::string> argv;  // for display: cut
  std::string cwd, user;          // likewise
  std::uint64_t output_cap = 0, spool_cap = 0;
};

struct exited_record {
  backends::command_exited event;
  std::optional<std::uint64_t> written_size;  // of the file, for a write that ended well
};

/// Its spools are gone. The id is used up, or free again.
struct dropped_record {
  std::string id;
  bool used_up = true;
};

using log_record =
    std::variant<begun_record, exited_record, backends::command_failed, dropped_record>;

/// A begun_record of what is sent, with long texts cut.
begun_record describe(const backends::exec_spec& spec, std::uint64_t spool_cap);

std::string encode(const log_record& record);

/// Reads the records of a log one by one. What cannot be read is passed over when a record follows
/// that can, and else is the torn end of a write that was cut short.
class log_reader {
 public:
  explicit log_reader(std::string_view bytes) : bytes_(bytes) {}

  /// nullopt: no more. Records of kinds that this release does not know are passed over.
  std::optional<log_record> next();
  /// The bytes of the record that was answered last.
  [[nodiscard]] std::string_view raw() const { return raw_; }
  /// Where the last whole record ends; at the end of reading, the length that the log should have.
  [[nodiscard]] std::size_t whole() const { return at_; }
  /// Bytes passed over because they could not be read.
  [[nodiscard]] std::size_t unreadable() const { return unreadable_; }

 private:
  bool find_frame();

  std::string_view bytes_, raw_;
  std::size_t at_ = 0, unreadable_ = 0;
};

}  // namespace dsec::container
