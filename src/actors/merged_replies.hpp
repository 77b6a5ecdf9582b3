// What several workers answered to one question, as one reply. Pure, any thread; bounded by the
// size of a message, whatever they send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/event_cursor.hpp"
#include "proto/frame.hpp"

namespace dsec::actors {

struct edge_answer {
  std::string edge;  // empty: of several, as made here
  proto::frame reply;
};

/// All sandboxes, living ones first, then the newest; `silent` are those who did not answer.
proto::frame merged_sandboxes(std::uint64_t id, const std::vector<edge_answer>& answers,
                              std::vector<std::string> silent);
/// All nodes, by name.
proto::frame merged_nodes(std::uint64_t id, const std::vector<edge_answer>& answers,
                          std::vector<std::string> silent);
/// All images, each once with the names of the workers that have it.
proto::frame merged_images(std::uint64_t id, const std::vector<edge_answer>& answers,
                           std::vector<std::string> silent);

/// Where a reader of events was, and what he wants.
struct events_wanted {
  event_cursor after;
  std::size_t limit = 0;  // 0: as many as fit
};
/// The oldest of all events, those of one worker in its order; the rest is what comes after the
/// cursor.
proto::frame merged_events(std::uint64_t id, const std::vector<edge_answer>& answers,
                           std::vector<std::string> silent, const events_wanted& wanted);
/// Whether a worker has any events, or has lost some.
bool has_events(const proto::frame& answer);

}  // namespace dsec::actors
