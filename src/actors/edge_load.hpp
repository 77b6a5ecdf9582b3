// How full a worker is: what its edge and its host say, and what placement goes by. Plain data.
#pragma once

#include <cstdint>

#include "actors/admission.hpp"

namespace dsec::actors {

struct edge_load {
  node_load now;  // memory is filled in by whoever reads it
  admission_policy policy;
  std::uint32_t waiting = 0;  // creates that are not admitted yet
  bool draining = false;      // takes no creates
};

}  // namespace dsec::actors
