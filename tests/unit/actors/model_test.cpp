// Another run of the same seed: DSEC_MODEL_SEED. What was not written at a kill -9 depends on the
// real time that passed, all else on the seed.
#include "model.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include "base/log.hpp"
#include "support/length.hpp"

using namespace dsec::test;
namespace base = dsec::base;

TEST_CASE("a node keeps its promises over random operations") {
  const char* wanted = std::getenv("DSEC_MODEL_SEED");
  const auto seed = wanted != nullptr ? std::stoull(wanted) : std::random_device{}();
  const int operations = length(1'000'000);
  std::cout << "model: seed " << seed << ", " << operations << " operations" << std::endl;
  INFO("DSEC_MODEL_SEED=" << seed);
  base::log::set_level(base::log::level::error);
  model(seed).run(operations);
  base::log::set_level(base::log::level::info);
}
