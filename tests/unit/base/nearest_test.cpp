#include "base/nearest.hpp"

#include <catch2/catch.hpp>
#include <vector>

using dsec::base::edit_distance;
using dsec::base::nearest;

TEST_CASE("edit distance counts insertions, deletions and replacements") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("flaw", "lawn") == 2);
}

TEST_CASE("the nearest candidate is found, and none when all are far") {
  const std::vector<std::string> names{"debian-python:12", "debian:12", "alpine:3"};
  CHECK(nearest(names, "debian-pyton:12") == "debian-python:12");
  CHECK(nearest(names, "debain:12") == "debian:12");
  CHECK(nearest(names, "zzzzzz").empty());
  CHECK(nearest({}, "x").empty());
}
