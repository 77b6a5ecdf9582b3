#include "base/phase.hpp"

#include <catch2/catch.hpp>

using dsec::base::can_transition;
using dsec::base::is_terminal;
using dsec::base::phase;
using dsec::base::phase_count;

TEST_CASE("a terminal phase has no way out") {
  for (int from = 0; from < phase_count; ++from) {
    if (!is_terminal(static_cast<phase>(from))) continue;
    for (int to = 0; to < phase_count; ++to) {
      CHECK_FALSE(can_transition(static_cast<phase>(from), static_cast<phase>(to)));
    }
  }
}

TEST_CASE("stopping is legal from every live phase, once") {
  for (int from = 0; from < phase_count; ++from) {
    const auto p = static_cast<phase>(from);
    CHECK(can_transition(p, phase::stopping) == (!is_terminal(p) && p != phase::stopping));
  }
}

TEST_CASE("every phase and cause survives its name") {
  for (int i = 0; i < phase_count; ++i) {
    const auto p = static_cast<phase>(i);
    CHECK(dsec::base::parse_phase(to_string(p)).value() == p);
  }
  for (int i = 0; i <= 10; ++i) {
    const auto c = static_cast<dsec::base::cause>(i);
    CHECK(dsec::base::parse_cause(to_string(c)).value() == c);
  }
  CHECK_FALSE(dsec::base::parse_phase("asleep"));
}

TEST_CASE("a sandbox cannot run before it was admitted") {
  CHECK_FALSE(can_transition(phase::requested, phase::running));
  CHECK_FALSE(can_transition(phase::requested, phase::preparing));
  CHECK(can_transition(phase::starting, phase::running));
}
