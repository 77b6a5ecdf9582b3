// What several workers answered to one question, as one reply. Pure, any thread; bounded by the
// size of a message, whatever they send.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/frame.hpp"

namespace dsec::actors {

struct edge_answer {
  std::string edge;  // empty: of several, as made here
  proto::frame reply;
};

/// All sandboxes, living ones first, then the newest; `silent` are those who did not answer.
proto::frame merged_sandboxes(std::uint64_t id, const std::vector<edge_answer>& answers,
                              std::vector<std::string> silent);
/// All images, each once with the names of the workers that have it.
proto::frame merged_images(std::uint64_t id, const std::vector<edge_answer>& answers,
                           std::vector<std::string> silent);

}  // namespace dsec::actors
