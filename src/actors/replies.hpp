// Builds the Reply frames of the client protocol. Pure, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/command_table.hpp"
#include "actors/event_log.hpp"
#include "actors/node_memory.hpp"
#include "actors/record.hpp"
#include "base/error.hpp"
#include "fs/image_store.hpp"
#include "proto/frame.hpp"

namespace dsec::actors {

/// `object`: what it is about, where `why` does not say.
proto::frame error_reply(std::uint64_t id, const base::error& why, std::string_view object = {});

/// What both sides have agreed on.
struct hello_answer {
  std::string edge;
  std::uint32_t version = 0;
  bool packed = false;
};
proto::frame hello_reply(std::uint64_t id, const hello_answer& agreed);
proto::frame pong_reply(std::uint64_t id);

struct sandbox_view {
  record_ptr record;
  std::uint32_t commands_running = 0;
};
proto::frame sandbox_reply(std::uint64_t id, const sandbox_view& sandbox);
/// Sandboxes that do not fit in a message any more are left out, and the reply says so: put the
/// oldest ended ones last.
proto::frame sandboxes_reply(std::uint64_t id, const std::vector<sandbox_view>& sandboxes);

struct command_output {
  std::string out, err;
};
proto::frame command_reply(std::uint64_t id, std::string_view sandbox_id, const command& c,
                           const command_output& output = {});
/// A command's reply without what came inline: all of it is left for readOutput. Of a reply to
/// readOutput: that there is nothing yet.
proto::frame without_output(const proto::frame& answer);
proto::frame commands_reply(std::uint64_t id, std::string_view sandbox_id,
                            const std::vector<const command*>& list);

/// `total`: nullopt while the command runs; then what was read so far is all that is known.
proto::frame output_reply(std::uint64_t id, const backends::output_piece& piece,
                          std::optional<std::uint64_t> total);
/// Where all that a lost command has written was read: so much.
proto::frame lost_output_reply(std::uint64_t id, std::uint64_t total);
proto::frame file_data_reply(std::uint64_t id, std::string_view data, std::uint64_t offset,
                             std::uint64_t size);
proto::frame file_written_reply(std::uint64_t id, std::uint64_t size);

/// Bytes of events in one reply: it counts as a small one, whoever asks for how many.
inline constexpr std::size_t most_event_bytes = 48U << 10U;
proto::frame events_reply(std::uint64_t id, const event_page& page, const std::string& edge,
                          const std::string& epoch);
proto::frame usage_reply(std::uint64_t id, const backends::usage& used);

struct node_view {
  std::string edge;
  std::uint32_t sandboxes = 0;
  std::size_t creates = 0;
  std::uint64_t admitted_bytes = 0;
  memory_reading memory;
  std::uint32_t slots_ready = 0;
  std::map<std::string, std::string> unhealthy;  // reasons by subject
};
/// A list of this one.
proto::frame node_reply(std::uint64_t id, const node_view& node);
proto::frame images_reply(std::uint64_t id, const std::vector<fs::image>& images);

}  // namespace dsec::actors
