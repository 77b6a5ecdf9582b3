// The container backend on the real kernel: start, exec, stop, limits, failures. Needs root.
#include <catch2/catch.hpp>

#include "container_rig.hpp"

using namespace dsec;
using namespace dsec::test;
using base::errc;

TEST_CASE("a sandbox starts, runs commands and stops", "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("one");
  const auto r = box.run(program({"/bin/echo", "hello"}));
  REQUIRE(r.exited);
  CHECK(r.code() == 0);
  CHECK(r.out == "hello\n");
  CHECK(r.err.empty());
  CHECK(r.exited->stdout_total == 6);
  const auto s = box.sh("id -u; hostname; pwd; echo oops >&2; exit 7");
  CHECK(s.code() == 7);
  CHECK(s.out == "0\none\n/\n");
  CHECK(s.err == "oops\n");
  box.stop();
  box.stop();                                                                       // idempotent
  CHECK(box->exec(program({"/bin/true"})).error().code == errc::invalid_argument);  // no id
  auto late = program({"/bin/true"});
  late.id = "late";
  CHECK(box->exec(late).error().code == errc::wrong_phase);
  CHECK(box.events().times_gone() == 0);
}
