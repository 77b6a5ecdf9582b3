// One fake sandbox: a table of commands with their output, and a map of files. Thread-safe; events
// are handed over without a lock held.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/fake/backend.hpp"

namespace dsec::fake {

class instance final : public backends::instance, public std::enable_shared_from_this<instance> {
 public:
  instance(backend& owner, std::string id, backends::event_sink sink);

  base::result<void> exec(backends::exec_spec spec) override;
  base::result<void> kill(const std::string& command_id) override;
  base::result<backends::output_piece> read_output(const std::string& command_id,
                                                   backends::stream which, std::uint64_t offset,
                                                   std::uint64_t length,
                                                   std::optional<std::uint64_t> total) override;
  void forget(const std::string& command_id) override;
  base::result<backends::usage> usage() override;
  base::result<void> stop() override;

  void fail(base::cause why, std::string detail);
  void finish(const std::string& command_id, const fate& f, bool timed_out = false);
  [[nodiscard]] bool stopped() const;

 private:
  struct command {
    backends::exec_spec spec;
    fate what;
    bool over = false;
    std::chrono::system_clock::time_point started;
  };

  fate decide(const backends::exec_spec& spec);
  fate read_file(const backends::exec_spec& spec) const;
  fate write_file(const backends::exec_spec& spec);
  void schedule(const std::string& command_id, const fate& f, std::chrono::milliseconds timeout);
  void end(const std::string& command_id, const fate& f, bool timed_out, bool killed);
  base::result<void> step(std::string_view what) const;

  backend& owner_;
  const std::string id_;
  const backends::event_sink sink_;
  mutable std::mutex mutex_;
  std::map<std::string, command> commands_;
  std::map<std::string, std::string> files_;
  bool stopped_ = false;
  bool gone_ = false;
};

}  // namespace dsec::fake
