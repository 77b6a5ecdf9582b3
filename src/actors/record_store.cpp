#include "actors/record_store.hpp"

#include <utility>

namespace dsec::actors {
namespace {

using base::errc;
using base::fail;

class sql_record_store final : public record_store {
 public:
  explicit sql_record_store(std::unique_ptr<base::store> store) : store_(std::move(store)) {}

  base::result<std::vector<sandbox_record>> load() override;
  base::result<void> apply(const std::vector<record_change>& changes) override;

 private:
  base::result<void> write(const sandbox_record& r);
  base::result<void> erase(const std::string& id);

  std::unique_ptr<base::store> store_;
};

constexpr std::size_t columns = 12;

base::result<sandbox_record> record_of(const base::sql_row& row) {
  try {
    if (row.size() != columns)
      return fail(errc::corrupt, "sandboxes: unexpected number of columns");
    const auto text = [&](std::size_t i) { return std::get<std::string>(row[i]); };
    const auto number = [&](std::size_t i) {
      return static_cast<std::uint64_t>(std::get<std::int64_t>(row[i]));
    };
    sandbox_record r;
    r.id = text(0);
    r.owner = text(1);
    DSEC_TRY(r.phase, base::parse_phase(text(2)));
    DSEC_TRY(r.cause, base::parse_cause(text(3)));
    r.detail = text(4);
    DSEC_TRY(r.spec, parse_spec(text(5)));
    r.created_unix_ms = number(6);
    r.ended_unix_ms = number(7);
    r.key = text(8);
    r.body_hash = text(9);
    r.lease = {text(10), static_cast<std::uint32_t>(number(11))};
    return r;
  } catch (const std::bad_variant_access&) {
    return fail(errc::corrupt, "sandboxes: a column has an unexpected type");
  }
}

std::string name_of(const base::sql_row& row) {
  const auto* id = row.empty() ? nullptr : std::get_if<std::string>(&row.front());
  return id == nullptr ? "a sandbox" : "sandbox '" + *id + "'";
}

base::result<std::vector<sandbox_record>> sql_record_store::load() {
  DSEC_TRY(const auto rows,
           store_->query("SELECT id, owner, phase, cause, detail, spec, created_ms, ended_ms, "
                         "idempotency_key, body_hash, lease, lease_ms FROM sandboxes "
                         "ORDER BY created_ms, id"));
  std::vector<sandbox_record> records;
  for (const auto& row : rows) {
    auto record = record_of(row);
    if (!record) {
      auto why = record.error();
      why.message =
          "the record of " + name_of(row) + " in the store cannot be read: " + why.message +
          "; dsecd does not start with it: delete that row of 'sandboxes' (what runs of it "
          "is ended then), or go back to the release that wrote it";
      return fail(std::move(why));
    }
    records.push_back(*std::move(record));
  }
  return records;
}

base::result<void> sql_record_store::write(const sandbox_record& r) {
  return store_->execute(
      "INSERT OR REPLACE INTO sandboxes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {r.id, r.owner, std::string(to_string(r.phase)), std::string(to_string(r.cause)), r.detail,
       to_json(r.spec), static_cast<std::int64_t>(r.created_unix_ms),
       static_cast<std::int64_t>(r.ended_unix_ms), r.key, r.body_hash, r.lease.id,
       static_cast<std::int64_t>(r.lease.ms)});
}

base::result<void> sql_record_store::erase(const std::string& id) {
  return store_->execute("DELETE FROM sandboxes WHERE id = ?", {id});
}

base::result<void> sql_record_store::apply(const std::vector<record_change>& changes) {
  return store_->transaction([&]() -> base::result<void> {
    for (const auto& change : changes) {
      if (const auto* record = std::get_if<record_ptr>(&change)) {
        DSEC_CHECK(write(**record));
      } else {
        DSEC_CHECK(erase(std::get<erased>(change).id));
      }
    }
    return {};
  });
}

}  // namespace

std::vector<std::string> worker_migrations() {
  return {
      "CREATE TABLE sandboxes ("
      "id TEXT PRIMARY KEY, "
      "owner TEXT NOT NULL, "
      "phase TEXT NOT NULL, "
      "cause TEXT NOT NULL, "
      "detail TEXT NOT NULL, "
      "spec TEXT NOT NULL, "
      "created_ms INTEGER NOT NULL, "
      "ended_ms INTEGER NOT NULL, "
      "idempotency_key TEXT NOT NULL, "
      "body_hash TEXT NOT NULL)",
      "ALTER TABLE sandboxes ADD COLUMN lease TEXT NOT NULL DEFAULT ''",
      "ALTER TABLE sandboxes ADD COLUMN lease_ms INTEGER NOT NULL DEFAULT 0"};
}

std::unique_ptr<record_store> make_record_store(std::unique_ptr<base::store> store) {
  return std::make_unique<sql_record_store>(std::move(store));
}

}  // namespace dsec::actors
