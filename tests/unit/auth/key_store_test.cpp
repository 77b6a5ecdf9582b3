#include "auth/key_store.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <mutex>

#include "auth/api_key.hpp"
#include "auth/key_watch.hpp"
#include "support/eventually.hpp"
#include "support/temp_dir.hpp"

using namespace dsec::auth;
using dsec::base::errc;
using dsec::base::paths;
using dsec::test::eventually;
using dsec::tests::temp_dir;

TEST_CASE("a key is made, listed and revoked, and never stands on disk") {
  const temp_dir dir;
  const paths where(dir.path());
  auto keys = key_store::open(where).value();
  std::string id;
  const auto key = keys.create("alice", "laptop", id).value();
  auto all = keys.list().value();
  REQUIRE(all.size() == 1);
  CHECK(all[0].id == id);
  CHECK(all[0].principal == "alice");
  CHECK(all[0].name == "laptop");
  CHECK(all[0].hash == hash_of(key));
  CHECK(all[0].created_unix_ms > 0);
  CHECK_FALSE(all[0].revoked_unix_ms);
  for (const char* file : {"keys.db", "keys.db-wal"}) {
    std::ifstream in(dir / file, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    CHECK(bytes.find(key.substr(5)) == std::string::npos);
  }

  CHECK(keys.good()->size() == 1);
  const auto when = keys.revoke(id).value().revoked_unix_ms;
  CHECK(when);
  CHECK(keys.good()->empty());
  CHECK(keys.revoke(id).value().revoked_unix_ms == when);
  CHECK(keys.revoke("k-unknown").error().code == errc::not_found);
  CHECK(key_store::open(where).value().list().value().at(0).revoked_unix_ms == when);
}

TEST_CASE("principals and names that lists and logs could not show are refused") {
  const temp_dir dir;
  auto keys = key_store::open(paths(dir.path())).value();
  std::string id;
  for (const std::string& bad : {std::string(), std::string("a b"), std::string(65, 'x'),
                                 std::string("a\nb"), std::string("\xff")}) {
    CHECK(keys.create(bad, "", id).error().code == errc::invalid_argument);
    if (!bad.empty()) CHECK(keys.create("a", bad, id).error().code == errc::invalid_argument);
  }
  CHECK(keys.list().value().empty());
}

TEST_CASE("a store that is damaged or newer is refused by name") {
  const temp_dir dir;
  const paths where(dir.path());
  {
    auto newer = dsec::base::open_sqlite(where.keys_db(), dsec::base::durability::power,
                                         {"CREATE TABLE a (x)", "CREATE TABLE b (x)"});
    REQUIRE(newer);
  }
  CHECK(key_store::open(where).error().code == errc::unsupported);
  for (const char* rest : {"keys.db-wal", "keys.db-shm"}) std::filesystem::remove(dir / rest);
  dsec::tests::write(where.keys_db(), std::string(8192, 'x'));
  const auto damaged = key_store::open(where);
  REQUIRE_FALSE(damaged);
  CHECK(damaged.error().code == errc::corrupt);
  CHECK(damaged.error().message.find("keys.db") != std::string::npos);
}

TEST_CASE("what another process writes, and another local key, gets to the gate") {
  const temp_dir dir;
  const paths where(dir.path());
  auto elsewhere = key_store::open(where).value();
  std::string first, second;
  const auto early = elsewhere.create("alice", "", first).value();
  const auto g = std::make_shared<gate>();
  auto watch = key_watch::open(where, local_key("dsec_local"), g).value();
  CHECK(g->by_key(early)->principal == "alice");
  CHECK(g->by_key("dsec_local")->principal == "root");

  std::mutex mutex;
  std::vector<std::string> gone;
  watch->start([&](const auto& ids) {
    const std::scoped_lock lock(mutex);
    gone.insert(gone.end(), ids.begin(), ids.end());
  });
  const auto told = [&](const std::vector<std::string>& ids) {
    const std::scoped_lock lock(mutex);
    return gone == ids;
  };
  const auto late = elsewhere.create("bob", "", second).value();
  CHECK(eventually([&] { return g->by_key(late).has_value(); }));
  const auto began = std::chrono::steady_clock::now();
  REQUIRE(elsewhere.revoke(first));
  CHECK(eventually([&] { return told({first}); }));
  // Five times what is promised.
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(5));
  CHECK_FALSE(g->by_key(early));

  const auto old = local_key("dsec_local").id;
  watch->set_local(local_key("dsec_another"));
  CHECK(eventually([&] { return told({first, old}); }));
  CHECK(g->by_key("dsec_another"));
  CHECK_FALSE(g->by_key("dsec_local"));
  CHECK(g->by_key(late));
  watch->stop();
}
