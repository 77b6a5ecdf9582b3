// What an instance remembers of its commands: each fate is told once, whoever says it how often.
#include "backends/container/command_table.hpp"

#include <catch2/catch.hpp>

using namespace dsec;
using namespace dsec::container;

namespace {

command_record record() {
  return {backends::exec_kind::program, "/bin/true", "/", "root", 4096, true};
}

}  // namespace

TEST_CASE("start and end of a command are told once") {
  command_table table;
  REQUIRE(table.add("a", record()));
  CHECK(table.add("a", record()).error().code == base::errc::already_exists);
  CHECK(table.start("a"));
  CHECK_FALSE(table.start("a"));
  CHECK(table.end("a")->object == "/bin/true");
  CHECK_FALSE(table.end("a"));
  CHECK_FALSE(table.start("a"));
  CHECK(table.find("a"));
  table.remove("a");
  CHECK_FALSE(table.find("a"));
  CHECK_FALSE(table.start("a"));
  CHECK_FALSE(table.end("a"));
}

TEST_CASE("a command that has ended before is known and not told again") {
  command_table table;
  REQUIRE(table.add_ended("a", record()));
  CHECK(table.find("a"));
  CHECK_FALSE(table.start("a"));
  CHECK_FALSE(table.end("a"));
}

// A kill can overtake the exec that it is meant for: then aether does not know the command, which
// runs a moment later.
TEST_CASE("only a command that was asked for has not run when it is unknown inside") {
  command_table table;
  REQUIRE(table.add("on its way", record()));
  CHECK_FALSE(table.end_unknown("on its way"));
  CHECK(table.start("on its way"));
  REQUIRE(table.add_asked("asked for", record()));
  CHECK(table.end_unknown("asked for"));
  CHECK_FALSE(table.end_unknown("asked for"));
  table.remove("asked for");
  REQUIRE(table.add("asked for", record()));  // its id was free
  CHECK_FALSE(table.end_unknown("asked for"));
  CHECK_FALSE(table.end_unknown("never heard of"));
}
