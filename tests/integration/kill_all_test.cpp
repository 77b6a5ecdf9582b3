// Kill means all: whatever a command has made of itself, killing it leaves nothing of it, and the
// sandbox goes on. Needs root.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "backends/sys/temp_dir.hpp"
#include "container_rig.hpp"
#include "support/fuse_file.hpp"
#include "support/length.hpp"
#include "support/skip.hpp"

using namespace dsec;
using namespace dsec::test;

namespace {

/// The command has said that its processes are where they are to be.
bool is_ready(container_box& box, const std::string& id) {
  return eventually(
      [&] {
        const auto piece = box->read_output(id, backends::stream::out, 0, 64, std::nullopt);
        return piece && piece->data.find("ready") != std::string::npos;
      },
      60s);
}

void killed_with_all(container_rig& rig, container_box& box, const std::vector<std::string>& argv,
                     std::size_t at_least, std::chrono::milliseconds limit) {
  const auto before = rig.inhabitants().size();
  const auto id = box.begin(program(argv));
  REQUIRE(is_ready(box, id));
  CHECK(rig.inhabitants().size() >= before + at_least);
  REQUIRE(box->kill(id));
  const auto end = box.events().wait_ended(id, limit);
  REQUIRE(end);
  REQUIRE(end->exited);
  CHECK(end->exited->killed);
  // Reported only when its group was empty, but for what the kernel has not buried yet.
  CHECK(eventually([&] { return rig.inhabitants().size() <= before; }, 2s));
  CHECK(box.sh("echo after").out == "after\n");
}

std::filesystem::path make_slow_image(const std::filesystem::path& dir) {
  const auto tree = dir / "tree", image = dir / "slow.erofs";
  std::filesystem::create_directories(tree / "slow");
  std::ofstream big(tree / "slow/big", std::ios::binary);
  for (int i = 0; i < 1 << 20; ++i) big << static_cast<char>(i * 7 + (i >> 8));
  big.close();
  const auto command = "mkfs.erofs " + image.string() + " " + tree.string() + " >/dev/null 2>&1";
  REQUIRE(std::system(command.c_str()) == 0);
  return image;
}

}  // namespace

TEST_CASE("kill ends every process that a command made", "[kernel][container][kill][C3]") {
  container_rig rig;
  auto box = rig.start("family");
  for (const auto& [kind, members] :
       {std::pair("daemon", 2U), {"session", 2U}, {"stopped", 2U}, {"traced", 3U}, {"vfork", 3U}}) {
    INFO(kind);
    killed_with_all(rig, box, {"/attack", "family", kind}, members, 5s);
  }
  box.stop();
}

TEST_CASE("a time limit ends every process that a command made", "[kernel][container][kill][C3]") {
  container_rig rig;
  auto box = rig.start("limited");
  const auto before = rig.inhabitants().size();
  auto spec = shell("sleep 300 & setsid sleep 301 & wait");
  spec.timeout = 1s;
  const auto r = box.run(spec, 2s);
  REQUIRE(r.exited);
  CHECK(r.exited->timed_out);
  CHECK(eventually([&] { return rig.inhabitants().size() <= before; }, 1s));
  box.stop();
}

TEST_CASE("kill ends thousands of processes that fork as it comes",
          "[kernel][container][kill][threat-6]") {
  container_rig rig;
  auto spec = container_rig::spec("relays");
  spec.limits.pids = 8192;
  spec.limits.memory_bytes = 4ULL << 30U;
  auto box = rig.start(spec);
  const int chains = length(4000);
  killed_with_all(rig, box, {"/attack", "relays", std::to_string(chains)},
                  static_cast<std::size_t>(chains) / 2, 20s);
  box.stop();
}

TEST_CASE("kill and stop end what waits for a layer that does not come",
          "[kernel][container][kill]") {
  if (!std::filesystem::exists("/dev/fuse")) return say_skipped("no /dev/fuse");
  const auto dir = *sys::temp_dir::make("dsec-slow");
  fuse_file slow(make_slow_image(dir.path()));
  container_rig rig;
  auto spec = container_rig::spec("reader");
  spec.layers.push_back({"layer-slow", slow.image()});
  auto box = rig.start(spec);
  slow.hold();
  const auto before = rig.inhabitants().size();
  const auto killed = box.begin_sh("echo ready; exec cat /slow/big");
  REQUIRE(eventually([&] { return slow.held() > 0; }, 10s));
  REQUIRE(box->kill(killed));
  const auto end = box.events().wait_ended(killed, 5s);
  REQUIRE(end);
  CHECK(end->exited);
  CHECK(eventually([&] { return rig.inhabitants().size() <= before; }, 5s));
  CHECK(box.sh("echo after").out == "after\n");
  // And with the whole sandbox: what waits must not hold up its end.
  const auto waits = box.begin_sh("tail -c 1000 /slow/big");
  REQUIRE(eventually([&] { return slow.held() > 0; }, 10s));
  box.stop();
  CHECK(rig.inhabitants().empty());
  slow.let_go();
  spec.sandbox_id = "later";
  auto again = rig.start(spec);
  CHECK(again.sh("wc -c </slow/big").out == "1048576\n");
  again.stop();
}
