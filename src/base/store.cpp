#include "base/store.hpp"

#include <sqlite3.h>

#include <string>

#include "base/text.hpp"

namespace dsec::base {
namespace {

struct db_deleter {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct statement_deleter {
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};
using db_handle = std::unique_ptr<sqlite3, db_deleter>;
using statement = std::unique_ptr<sqlite3_stmt, statement_deleter>;

errc code_of(int rc) {
  switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return errc::corrupt;
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
      return errc::io;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return errc::unavailable;
    case SQLITE_CONSTRAINT:
      return errc::already_exists;
    default:
      return errc::internal;
  }
}

class sqlite_store final : public store {
 public:
  sqlite_store(db_handle db, std::string name) : db_(std::move(db)), name_(std::move(name)) {}

  result<void> execute(std::string_view sql, const std::vector<sql_value>& parameters) override {
    DSEC_TRY(const auto s, prepare(sql, parameters));
    const int rc = sqlite3_step(s.get());
    if (rc != SQLITE_DONE && rc != SQLITE_ROW) return fail(failure(rc, sql));
    return {};
  }

  result<std::vector<sql_row>> query(std::string_view sql,
                                     const std::vector<sql_value>& parameters) override {
    DSEC_TRY(const auto s, prepare(sql, parameters));
    std::vector<sql_row> rows;
    for (;;) {
      const int rc = sqlite3_step(s.get());
      if (rc == SQLITE_DONE) return rows;
      if (rc != SQLITE_ROW) return fail(failure(rc, sql));
      rows.push_back(row_of(s.get()));
    }
  }

  result<void> transaction(const std::function<result<void>()>& body) override {
    DSEC_CHECK(execute("BEGIN IMMEDIATE", {}));
    auto done = body();
    if (done) done = execute("COMMIT", {});
    if (!done) {
      // SQLite rolls back by itself after some errors; a second ROLLBACK then only complains.
      [[maybe_unused]] const auto ignored = execute("ROLLBACK", {});
    }
    return done;
  }

 private:
  [[nodiscard]] error failure(int rc, std::string_view what) const {
    return {code_of(rc),
            "store '" + name_ + "': " + sqlite3_errmsg(db_.get()) + " in: " + shown(what, 80), 0};
  }

  result<statement> prepare(std::string_view sql, const std::vector<sql_value>& parameters) {
    sqlite3_stmt* raw = nullptr;
    const int rc =
        sqlite3_prepare_v2(db_.get(), sql.data(), static_cast<int>(sql.size()), &raw, nullptr);
    statement s(raw);
    if (rc != SQLITE_OK) return fail(failure(rc, sql));
    for (std::size_t i = 0; i < parameters.size(); ++i)
      bind(raw, static_cast<int>(i) + 1, parameters[i]);
    return s;
  }

  static void bind(sqlite3_stmt* s, int index, const sql_value& v) {
    if (const auto* number = std::get_if<std::int64_t>(&v)) {
      sqlite3_bind_int64(s, index, *number);
    } else if (const auto* text = std::get_if<std::string>(&v)) {
      sqlite3_bind_text64(s, index, text->data(), text->size(), SQLITE_TRANSIENT, SQLITE_UTF8);
    } else {
      sqlite3_bind_null(s, index);
    }
  }

  static sql_row row_of(sqlite3_stmt* s) {
    sql_row row;
    for (int i = 0; i < sqlite3_column_count(s); ++i) {
      switch (sqlite3_column_type(s, i)) {
        case SQLITE_NULL:
          row.emplace_back(nullptr);
          break;
        case SQLITE_INTEGER:
          row.emplace_back(static_cast<std::int64_t>(sqlite3_column_int64(s, i)));
          break;
        default: {
          // The blob is asked for before its size, see sqlite3_column_bytes.
          const auto* data = static_cast<const char*>(sqlite3_column_blob(s, i));
          const auto size = static_cast<std::size_t>(sqlite3_column_bytes(s, i));
          row.emplace_back(data == nullptr ? std::string() : std::string(data, size));
        }
      }
    }
    return row;
  }

  db_handle db_;
  std::string name_;
};

result<void> migrate(store& s, const std::string& name,
                     const std::vector<std::string>& migrations) {
  DSEC_TRY(const auto rows, s.query("PRAGMA user_version"));
  const auto version = static_cast<std::size_t>(std::get<std::int64_t>(rows.at(0).at(0)));
  if (version > migrations.size()) {
    return fail(errc::unsupported, "store '" + name + "' has schema version " +
                                       std::to_string(version) + ", this program knows " +
                                       std::to_string(migrations.size()) +
                                       "; start the newer dsecd that wrote it");
  }
  for (std::size_t v = version; v < migrations.size(); ++v) {
    DSEC_CHECK(s.transaction([&]() -> result<void> {
      DSEC_CHECK(s.execute(migrations[v]));
      return s.execute("PRAGMA user_version = " + std::to_string(v + 1));
    }));
  }
  return {};
}

}  // namespace

result<std::unique_ptr<store>> open_sqlite(const std::filesystem::path& file, durability d,
                                           const std::vector<std::string>& migrations) {
  const auto name = file.string();
  sqlite3* raw = nullptr;
  const int rc =
      sqlite3_open_v2(file.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  db_handle db(raw);
  if (rc != SQLITE_OK) {
    return fail(code_of(rc), "cannot open store '" + name + "': " + sqlite3_errstr(rc));
  }
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, 5000);
  auto s = std::make_unique<sqlite_store>(std::move(db), name);
  DSEC_TRY(const auto mode, s->query("PRAGMA journal_mode = WAL", {}));
  // process: what write(2) has taken survives kill -9 of this process; no fsync at all.
  DSEC_CHECK(s->execute(
      d == durability::power ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = OFF", {}));
  DSEC_TRY(const auto check, s->query("PRAGMA quick_check", {}));
  if (check.size() != 1 || check[0].size() != 1 || check[0][0] != sql_value(std::string("ok"))) {
    return fail(errc::corrupt,
                "store '" + name + "' is damaged; move it away to start with an empty one");
  }
  DSEC_CHECK(migrate(*s, name, migrations));
  return s;
}

}  // namespace dsec::base
