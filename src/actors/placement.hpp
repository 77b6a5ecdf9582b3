// Which worker a create goes to. Pure; the cluster actor calls it.
//
// A create with an idempotency key has a short ordered list of workers that depends on the key and
// on who is there, and on nothing that is remembered: whoever made a sandbox with the key before is
// among them, and is asked first. Among those that may take it the least full one is tried first,
// with what this coordinator has sent there and no report counts yet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/edge_load.hpp"

namespace dsec::actors {

/// The names in the order of rendezvous hashing: a name that comes or goes moves no other one.
std::vector<std::string> rendezvous(std::string_view principal, std::string_view key,
                                    std::vector<std::string> edges);

/// One worker that could be asked.
struct candidate {
  std::string edge;
  edge_load load;
  std::uint32_t unseen = 0;  // creates sent there that `load` does not count yet
  bool healthy = true;
  bool has_images = true;
};

/// Share of the scarcer of slots and memory that is spoken for; over 1 when more wait than fit.
double fullness(const candidate& c);

/// Who is to be tried, in this order: whoever is healthy and takes creates; those that have the
/// images and room now before those that have not (a report may be old), the least full first, in
/// the given order where that is equal.
std::vector<std::string> places(const std::vector<candidate>& from, std::uint64_t limit_bytes);

}  // namespace dsec::actors
