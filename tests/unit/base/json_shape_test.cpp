#include "base/json_shape.hpp"

#include <catch2/catch.hpp>

using dsec::base::shape_of_json;

TEST_CASE("the shape of a JSON text is seen without parsing it", "[json]") {
  CHECK(shape_of_json("1").values == 1);
  CHECK(shape_of_json("1").depth == 0);
  CHECK(shape_of_json(R"({"a":[1,2,{"b":null}],"c":"x"})").depth == 3);
  CHECK(shape_of_json("[1,2,3]").values == 4);
  CHECK(shape_of_json("[[],[],[]]").depth == 2);
}

TEST_CASE("what stands in a string is no structure", "[json]") {
  const auto shape = shape_of_json(R"(["[[[,,,\"[[","\\",","])");
  CHECK(shape.depth == 1);
  CHECK(shape.values == 4);
  CHECK(shape_of_json("\"\\").values == 1);
}

TEST_CASE("what is not JSON has a shape too", "[json]") {
  CHECK(shape_of_json("").values == 1);
  CHECK(shape_of_json("]]]]").depth == 0);
  CHECK(shape_of_json("[[[[").depth == 4);
}
