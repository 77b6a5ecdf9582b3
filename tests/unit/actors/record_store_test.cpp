#include "actors/record_store.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "actors/record_writer.hpp"
#include "base/ids.hpp"
#include "support/eventually.hpp"

using namespace dsec::actors;
namespace base = dsec::base;

namespace {

struct temp_db {
  std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("dsec-" + base::random_token(60) + ".db");
  ~temp_db() {
    for (const auto* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(file.string() + suffix);
  }
  [[nodiscard]] std::unique_ptr<record_store> open() const {
    auto s = base::open_sqlite(file, base::durability::process, worker_migrations());
    REQUIRE(s);
    return make_record_store(std::move(*s));
  }
};

sandbox_record sample(const std::string& id) {
  sandbox_record r;
  r.id = id;
  r.owner = "alice";
  r.phase = base::phase::running;
  r.detail = "it's 'quoted'";
  r.spec.backend = "container";
  r.spec.image = "debian:12";
  r.spec.toolkits = {"pytest:8"};
  r.spec.layers = {{"aa", "/blobs/aa"}};
  r.spec.limits = {1500, 1ULL << 33U, 100, 200};
  r.spec.idle_ttl_seconds = 5;
  r.spec.absolute_ttl_seconds = 6;
  r.spec.env = {"A=1"};
  r.spec.user = "root";
  r.spec.workdir = "/w";
  r.spec.hostname = "h";
  r.spec.labels = {{"k", "v"}};
  r.spec.on_failure = on_failure::snapshot;
  r.spec.warnings = {"w"};
  r.created_unix_ms = 1'700'000'000'000;
  r.key = "key";
  r.body_hash = "hash";
  r.lease = {"lease", 5000};
  return r;
}

record_ptr shared(sandbox_record r) {
  return std::make_shared<const sandbox_record>(std::move(r));
}

/// Notes what is written and holds up the writer's thread until it is let go.
class slow_store final : public record_store {
 public:
  base::result<std::vector<sandbox_record>> load() override {
    return std::vector<sandbox_record>{};
  }
  base::result<void> apply(const std::vector<record_change>& changes) override {
    const std::scoped_lock lock(gate);
    batches.push_back(changes.size());
    for (const auto& c : changes) {
      if (const auto* r = std::get_if<record_ptr>(&c)) phases.push_back((*r)->phase);
    }
    if (failing) return base::fail(base::errc::io, "disk full");
    return {};
  }

  std::mutex gate;
  std::vector<std::size_t> batches;
  std::vector<base::phase> phases;
  bool failing = false;
};

}  // namespace

TEST_CASE("a record survives the store and a second opening of it") {
  const temp_db db;
  const auto before = sample("e0-aaaaaaaaaaaaaaaa");
  REQUIRE(db.open()->apply({shared(before), shared(sample("e0-b")), erased{"e0-b"}}));
  const auto all = db.open()->load();
  REQUIRE(all);
  REQUIRE(all->size() == 1);
  const auto& r = all->front();
  CHECK(r.id == before.id);
  CHECK(r.owner == before.owner);
  CHECK(r.phase == before.phase);
  CHECK(r.detail == before.detail);
  CHECK(to_json(r.spec) == to_json(before.spec));
  CHECK(r.spec.limits.memory_bytes == 1ULL << 33U);
  CHECK(r.spec.layers.front().blob == "/blobs/aa");
  CHECK(r.created_unix_ms == before.created_unix_ms);
  CHECK(r.key == "key");
  CHECK(r.body_hash == "hash");
  CHECK(r.lease.id == "lease");
  CHECK(r.lease.ms == 5000);
}

TEST_CASE("records of a release without leases are bound to none") {
  const temp_db db;
  {
    const auto old =
        base::open_sqlite(db.file, base::durability::process, {worker_migrations().front()});
    REQUIRE(old);
    REQUIRE(
        (*old)->execute("INSERT INTO sandboxes VALUES "
                        "('e0-a', 'alice', 'running', 'none', '', ?, 1, 0, 'key', 'hash')",
                        {to_json(sample("e0-a").spec)}));
  }
  const auto all = db.open()->load();
  REQUIRE(all);
  REQUIRE(all->size() == 1);
  CHECK_FALSE(all->front().lease);
  CHECK(all->front().key == "key");
}

TEST_CASE("records of a release that knew nothing to do on failure keep nothing") {
  auto json = to_json(sample("e0-a").spec);
  const std::string field = "\"on_failure\":\"snapshot\",";
  const auto at = json.find(field);
  REQUIRE(at != std::string::npos);
  CHECK(parse_spec(json)->on_failure == on_failure::snapshot);
  json.erase(at, field.size());
  CHECK(parse_spec(json)->on_failure == on_failure::none);
  json.insert(at, "\"on_failure\":\"burn\",");
  CHECK(parse_spec(json).error().code == base::errc::corrupt);
}

TEST_CASE("records of a release that knew no entrypoint have none, others keep it") {
  auto spec = sample("e0-a").spec;
  spec.entrypoint = {"/init", ""};
  spec.cmd = {"serve"};
  auto json = to_json(spec);
  CHECK(parse_spec(json)->entrypoint == spec.entrypoint);
  CHECK(parse_spec(json)->cmd == spec.cmd);
  for (const std::string field : {"\"cmd\":[\"serve\"],", "\"entrypoint\":[\"/init\",\"\"],"}) {
    const auto at = json.find(field);
    REQUIRE(at != std::string::npos);
    json.erase(at, field.size());
  }
  CHECK(parse_spec(json)->entrypoint.empty());
  CHECK(parse_spec(json)->cmd.empty());
}

TEST_CASE("a spec that is none is corrupt, not a crash") {
  CHECK(parse_spec("{\"backend\": 5}").error().code == base::errc::corrupt);
  CHECK(parse_spec("").error().code == base::errc::corrupt);
}

TEST_CASE("a record that cannot be read is named, with what to do") {
  const temp_db db;
  REQUIRE(db.open()->apply({shared(sample("e0-a")), shared(sample("e0-bad"))}));
  const auto store = base::open_sqlite(db.file, base::durability::process, worker_migrations());
  REQUIRE(store);
  for (const auto* damage : {"phase = 'asleep'", "spec = 'none'", "created_ms = 'long ago'"}) {
    REQUIRE(
        (*store)->execute("UPDATE sandboxes SET " + std::string(damage) + " WHERE id = 'e0-bad'"));
    const auto all = db.open()->load();
    REQUIRE_FALSE(all);
    CHECK(all.error().code == base::errc::corrupt);
    CHECK(all.error().message.find("sandbox 'e0-bad'") != std::string::npos);
    CHECK(all.error().message.find("delete that row") != std::string::npos);
  }
}

TEST_CASE("text that is no UTF-8 does not cost the record") {
  auto r = sample("e0-c");
  r.spec.env = {"A=\xff\xfe"};
  CHECK(parse_spec(to_json(r.spec)));
}

TEST_CASE("of several phases of one sandbox only the newest that is due is written") {
  auto store = std::make_unique<slow_store>();
  auto* seen = store.get();
  record_writer writer(std::move(store), [](const base::result<void>&) {});
  record_writer::ticket last = 0;
  {
    const std::scoped_lock held(seen->gate);
    // The first may already be under way; the others gather behind it.
    for (const auto p : {base::phase::requested, base::phase::admitted, base::phase::preparing,
                         base::phase::starting}) {
      auto r = sample("e0-a");
      r.phase = p;
      last = writer.save(shared(r));
    }
  }
  REQUIRE(writer.wait(last));
  const std::scoped_lock lock(seen->gate);
  CHECK(seen->phases.back() == base::phase::starting);
  CHECK(seen->batches.size() <= 2);
}

TEST_CASE("who waits for a change that could not be written is told") {
  auto store = std::make_unique<slow_store>();
  auto* seen = store.get();
  std::vector<bool> reported;
  record_writer writer(std::move(store),
                       [&](const base::result<void>& r) { reported.push_back(r.has_value()); });
  seen->failing = true;
  CHECK(writer.wait(writer.save(shared(sample("e0-a")))).error().code == base::errc::io);
  {
    const std::scoped_lock lock(seen->gate);
    seen->failing = false;
  }
  CHECK(writer.wait(writer.save(shared(sample("e0-a")))));
  CHECK(writer.wait(writer.save(shared(sample("e0-a")))));
  CHECK(reported == std::vector<bool>{false, true});  // and nothing of the second success
}

TEST_CASE("what could not be written is written when it can, and the newest of each sandbox") {
  const temp_db db;
  struct flaky final : record_store {
    explicit flaky(std::unique_ptr<record_store> s) : to(std::move(s)) {}
    base::result<std::vector<sandbox_record>> load() override { return to->load(); }
    base::result<void> apply(const std::vector<record_change>& changes) override {
      if (failing) return base::fail(base::errc::io, "disk full");
      return to->apply(changes);
    }
    std::unique_ptr<record_store> to;
    std::atomic<bool> failing{false};
  };
  auto store = std::make_unique<flaky>(db.open());
  auto* disk = store.get();
  record_writer writer(std::move(store), [](const base::result<void>&) {});
  for (const auto* id : {"e0-a", "e0-b", "e0-c"}) writer.save(shared(sample(id)));
  REQUIRE(writer.wait(writer.erase("e0-none")));
  disk->failing = true;
  auto ended = sample("e0-a");
  ended.phase = base::phase::stopped;
  const auto failed = writer.save(shared(ended));
  CHECK_FALSE(writer.wait(failed));
  CHECK_FALSE(writer.wait(writer.erase("e0-b")));
  auto newest = sample("e0-c");
  newest.phase = base::phase::stopping;
  CHECK_FALSE(writer.wait(writer.save(shared(newest))));
  newest.phase = base::phase::failed;
  CHECK_FALSE(writer.wait(writer.save(shared(newest))));
  disk->failing = false;
  const auto phases = [&] {
    std::map<std::string, base::phase> all;
    const auto records = db.open()->load();
    REQUIRE(records);
    for (const auto& r : *records) all[r.id] = r.phase;
    return all;
  };
  const std::map<std::string, base::phase> right{{"e0-a", base::phase::stopped},
                                                 {"e0-c", base::phase::failed}};
  CHECK(dsec::test::eventually([&] { return phases() == right; }));
  CHECK_FALSE(writer.wait(failed));  // who asks late hears the same
}

TEST_CASE("a writer that ends while nothing can be written ends") {
  auto store = std::make_unique<slow_store>();
  store->failing = true;
  record_writer writer(std::move(store), [](const base::result<void>&) {});
  writer.save(shared(sample("e0-a")));
}

TEST_CASE("what was written before another failure counts as written") {
  auto store = std::make_unique<slow_store>();
  auto* seen = store.get();
  record_writer writer(std::move(store), [](const base::result<void>&) {});
  std::vector<record_writer::ticket> tickets;
  for (int i = 0; i < 40; ++i) {
    {
      const std::scoped_lock lock(seen->gate);
      seen->failing = i % 2 == 1;
    }
    tickets.push_back(writer.save(shared(sample("e0-a"))));
    CHECK(writer.wait(tickets.back()).has_value() == (i % 2 == 0));
    // Who asks late hears the same.
    const auto now = tickets.size();
    for (std::size_t back = 1; back <= std::min<std::size_t>(now, 8); ++back)
      CHECK(writer.wait(tickets[now - back]).has_value() == ((now - back) % 2 == 0));
  }
}

TEST_CASE("a writer that ends writes what is due first") {
  const temp_db db;
  {
    record_writer writer(db.open(), [](const base::result<void>&) {});
    for (int i = 0; i < 50; ++i) writer.save(shared(sample("e0-" + std::to_string(i))));
    writer.erase("e0-7");
  }
  CHECK(db.open()->load()->size() == 49);
}
