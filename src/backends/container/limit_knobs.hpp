// Which values go into which files of a slot's groups for given limits, on version 1 and 2. Pure,
// any thread.
#pragma once

#include <string>
#include <vector>

#include "backends/backend.hpp"

namespace dsec::container {

enum class group_level { slot, init, cmd };

struct knob {
  group_level level = group_level::cmd;
  std::string file;
  std::string value;
  bool optional = false;  // the host may lack the file: swap accounting can be switched off
};

/// In the order in which they must be written when `before` (or nothing, nullptr) is in force.
std::vector<knob> limit_knobs(const std::string& controller, int version,
                              const backends::limits& wanted, const backends::limits* before);

}  // namespace dsec::container
