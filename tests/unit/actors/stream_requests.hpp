// Requests about streams and output, and the pieces of streams that a client got.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "node_fixture.hpp"

namespace dsec::test {

/// Says in hello that the client wants streams.
inline const auto with_streams = [](proto::Hello::Builder h) {
  h.initFeatures(1).set(0, "streams");
};

/// One streamData.
struct piece {
  std::string data, end, code;
  std::uint64_t offset = 0, total = 0;
};
std::vector<piece> pieces(const client& c, std::uint64_t stream);
std::string together(const std::vector<piece>& all);

/// Of command c1, unless it is another.
client::fill open_output(std::uint64_t stream, const std::string& sandbox, std::uint64_t credit,
                         std::uint64_t offset = 0, const std::string& command = "c1");
client::fill open_file(std::uint64_t stream, const std::string& sandbox, const std::string& path);
client::fill credit(std::uint64_t stream, std::uint64_t bytes);
client::fill close_stream(std::uint64_t stream);

/// readOutput of command c1 that waits until there is some at `offset`.
client::fill read_when_there(const std::string& sandbox, std::uint64_t offset,
                             std::uint32_t wait_ms);

/// A command that runs until it is finished, under the script holding().
client::fill hold(const std::string& sandbox, const std::string& command = "c1");
/// A sandbox with such a command c1.
std::string with_held_command(node_fixture& node, client& c);

}  // namespace dsec::test
