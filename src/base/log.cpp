#include "base/log.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

namespace dsec::base::log {
namespace {

std::atomic<level> minimum_level{level::info};

constexpr std::string_view names[] = {"debug", "info", "warn", "error"};

}  // namespace

void set_level(level minimum) {
  minimum_level = minimum;
}

bool parse_level(std::string_view name, level& out) {
  for (std::size_t i = 0; i < std::size(names); ++i) {
    if (names[i] == name) {
      out = static_cast<level>(i);
      return true;
    }
  }
  return false;
}

void write(level l, std::string_view event, std::initializer_list<field> fields) {
  if (l < minimum_level.load(std::memory_order_relaxed)) return;
  nlohmann::ordered_json line;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  line["ts"] =
      static_cast<double>(std::chrono::duration_cast<std::chrono::microseconds>(now).count()) / 1e6;
  line["level"] = names[static_cast<std::size_t>(l)];
  line["event"] = event;
  for (const auto& f : fields) {
    std::visit([&](const auto& v) { line[std::string(f.name)] = v; }, f.data);
  }
  // Invalid UTF-8 (a file name, a kernel message) is replaced, never thrown on.
  auto text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text += '\n';
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace dsec::base::log
