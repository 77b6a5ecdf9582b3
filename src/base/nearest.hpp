// "Did you mean …": the candidate with the smallest edit distance. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dsec::base {

/// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `wanted`; empty when none is nearer than half of its length.
std::string nearest(std::span<const std::string> candidates, std::string_view wanted);

}  // namespace dsec::base
