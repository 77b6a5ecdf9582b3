// The store: SQL behind one small interface; SQLite today. Blocking, one thread at a time per store
// object (the store pool's). Durability class is chosen when it is opened: `process` survives kill
// -9 of this process (page cache, no fsync), `power` survives a power cut (fsync per transaction).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"

namespace dsec::base {

enum class durability { process, power };

using sql_value = std::variant<std::nullptr_t, std::int64_t, std::string>;
using sql_row = std::vector<sql_value>;

class store {
 public:
  virtual ~store() = default;

  /// Runs one statement with `?` parameters.
  virtual result<void> execute(std::string_view sql,
                               const std::vector<sql_value>& parameters = {}) = 0;
  /// Runs one statement and returns its rows.
  virtual result<std::vector<sql_row>> query(std::string_view sql,
                                             const std::vector<sql_value>& parameters = {}) = 0;
  /// Runs body in one transaction; rolled back when it fails.
  virtual result<void> transaction(const std::function<result<void>()>& body) = 0;
};

/// Opens or makes a SQLite store and brings its schema to `migrations.size()`: migrations[i] takes
/// version i to i + 1. A newer store is refused (errc::unsupported), a damaged one is
/// errc::corrupt.
result<std::unique_ptr<store>> open_sqlite(const std::filesystem::path& file, durability d,
                                           const std::vector<std::string>& migrations);

}  // namespace dsec::base
