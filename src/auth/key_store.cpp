#include "auth/key_store.hpp"

#include <chrono>
#include <utility>

#include "auth/api_key.hpp"
#include "base/ids.hpp"
#include "base/text.hpp"
#include "base/unix_time.hpp"

namespace dsec::auth {
namespace {

using base::errc;
using base::fail;

const std::vector<std::string>& migrations() {
  static const std::vector<std::string> all{
      "CREATE TABLE keys (id TEXT PRIMARY KEY, name TEXT NOT NULL, principal TEXT NOT NULL,"
      " hash TEXT NOT NULL UNIQUE, created_ms INTEGER NOT NULL, revoked_ms INTEGER)"};
  return all;
}

constexpr std::string_view columns = "SELECT id, name, principal, hash, created_ms, revoked_ms ";

std::int64_t now_ms() {
  return static_cast<std::int64_t>(base::unix_ms(std::chrono::system_clock::now()));
}

base::result<stored_key> key_of(const base::sql_row& row) {
  const auto text = [&](std::size_t i) { return std::get_if<std::string>(&row.at(i)); };
  const auto* created = std::get_if<std::int64_t>(&row.at(4));
  if (!text(0) || !text(1) || !text(2) || !text(3) || !created)
    return fail(errc::corrupt, "store of API keys: a row that is no key");
  stored_key k{*text(0), *text(1), *text(2), *text(3), static_cast<std::uint64_t>(*created), {}};
  if (const auto* revoked = std::get_if<std::int64_t>(&row.at(5)))
    k.revoked_unix_ms = static_cast<std::uint64_t>(*revoked);
  return k;
}

base::result<std::vector<stored_key>> keys_of(const std::vector<base::sql_row>& rows) {
  std::vector<stored_key> out;
  for (const auto& row : rows) {
    DSEC_TRY(auto k, key_of(row));
    out.push_back(std::move(k));
  }
  return out;
}

}  // namespace

base::result<key_store> key_store::open(const base::paths& where) {
  DSEC_TRY(auto store, base::open_sqlite(where.keys_db(), base::durability::power, migrations()));
  key_store out(std::move(store));
  DSEC_CHECK(out.changed());
  return out;
}

base::result<std::string> key_store::create(const std::string& principal, const std::string& name,
                                            std::string& id) {
  // Both stand in logs and lists.
  if (!base::is_valid_command_id(principal)) {
    return fail(errc::invalid_argument, "principal '" + base::shown(principal, 80) +
                                            "' must be 1 to 64 of A-Z a-z 0-9 . _ -");
  }
  if (!name.empty() && !base::is_valid_command_id(name)) {
    return fail(errc::invalid_argument,
                "name '" + base::shown(name, 80) + "' must be at most 64 of A-Z a-z 0-9 . _ -");
  }
  auto key = new_api_key();
  id = "k-" + base::random_token(50);
  DSEC_CHECK(store_->execute(
      "INSERT INTO keys (id, name, principal, hash, created_ms) VALUES (?, ?, ?, ?, ?)",
      {id, name, principal, hash_of(key), now_ms()}));
  return key;
}

base::result<std::vector<stored_key>> key_store::list() {
  DSEC_TRY(const auto rows,
           store_->query(std::string(columns) + "FROM keys ORDER BY created_ms, id"));
  return keys_of(rows);
}

base::result<stored_key> key_store::revoke(const std::string& id) {
  DSEC_CHECK(store_->execute("UPDATE keys SET revoked_ms = ? WHERE id = ? AND revoked_ms IS NULL",
                             {now_ms(), id}));
  DSEC_TRY(const auto rows, store_->query(std::string(columns) + "FROM keys WHERE id = ?", {id}));
  DSEC_TRY(const auto found, keys_of(rows));
  if (found.empty()) {
    return fail(errc::not_found,
                "no API key has the id '" + base::shown(id, 80) + "'; `dsecd key ls` lists them");
  }
  return found.front();
}

base::result<std::vector<known_key>> key_store::good() {
  DSEC_TRY(const auto all, list());
  std::vector<known_key> out;
  for (const auto& k : all) {
    if (!k.revoked_unix_ms) out.push_back({k.id, k.principal, k.hash});
  }
  return out;
}

base::result<bool> key_store::changed() {
  // Counts what other connections have committed; costs a look into shared memory, no I/O.
  DSEC_TRY(const auto rows, store_->query("PRAGMA data_version"));
  const auto version = std::get<std::int64_t>(rows.at(0).at(0));
  return std::exchange(seen_, version) != version;
}

}  // namespace dsec::auth
