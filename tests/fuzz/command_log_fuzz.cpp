// A command log with anything in it: every record that is read has a valid id and comes back the
// same when it is written again, and what is to be kept ends where the last record does.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>

#include "backends/container/command_records.hpp"
#include "base/ids.hpp"

using namespace dsec;

namespace {

const std::string& id_of(const container::log_record& record) {
  return std::visit(
      [](const auto& r) -> const std::string& {
        if constexpr (requires { r.event; })
          return r.event.id;
        else
          return r.id;
      },
      record);
}

void read_all(std::string_view bytes) {
  container::log_reader reader(bytes);
  while (const auto record = reader.next()) {
    if (!base::is_valid_command_id(id_of(*record))) std::abort();
    const auto again = container::encode(*record);
    container::log_reader second(again);
    const auto same = second.next();
    if (!same || same->index() != record->index() || id_of(*same) != id_of(*record)) std::abort();
    if (second.whole() != again.size() || second.unreadable() != 0) std::abort();
  }
  if (reader.whole() > bytes.size() || reader.unreadable() > bytes.size()) std::abort();
}

/// `payload` as a record whose check fits, which no mutation would find.
std::string framed(std::string_view payload) {
  const auto length = static_cast<std::uint32_t>(payload.size());
  const auto check = base::id_hash(payload);
  std::string bytes = "dlog";
  bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
  bytes.append(reinterpret_cast<const char*>(&check), sizeof check);
  return bytes.append(payload);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_all(bytes);
  read_all(framed(bytes));
  return 0;
}
