#include "actors/replies.hpp"

#include <capnp/message.h>

#include <algorithm>
#include <chrono>

#include "actors/event_cursor.hpp"
#include "base/text.hpp"
#include "base/unix_time.hpp"
#include "proto/client.capnp.h"
#include "proto/limits.hpp"

namespace dsec::actors {
namespace {

// Room for the largest sandbox record beside text that is bounded elsewhere.
constexpr std::size_t most_listed_bytes = proto::max_message_bytes - (1U << 20U);

// A Text must be UTF-8 whatever a client or a sandbox gave: decoders of other languages refuse the
// whole message else. And it must end in NUL, which a view does not promise.
template <class Setter>
void put(std::string_view value, Setter set) {
  const std::string text = base::as_utf8(value);
  set(capnp::Text::Reader(text.c_str(), text.size()));
}

capnp::Data::Reader raw(std::string_view s) {
  return {reinterpret_cast<const kj::byte*>(s.data()), s.size()};
}

/// One reply: `fill` gets the body.
template <class F>
proto::frame build(std::uint64_t id, F&& fill, bool truncated = false) {
  capnp::MallocMessageBuilder message;
  auto reply = message.initRoot<proto::Reply>();
  reply.setId(id);
  reply.setTruncated(truncated);
  fill(reply.getBody());
  return proto::frame::from_builder(message);
}

template <class List>
void put_texts(List list, const std::vector<std::string>& values) {
  for (unsigned i = 0; i < values.size(); ++i) put(values[i], [&](auto t) { list.set(i, t); });
}

void put_sandbox(proto::Sandbox::Builder out, const sandbox_view& view) {
  const auto& r = *view.record;
  put(r.id, [&](auto t) { out.setSandboxId(t); });
  put(to_string(r.phase), [&](auto t) { out.setPhase(t); });
  put(to_string(r.cause), [&](auto t) { out.setCause(t); });
  put(r.spec.backend, [&](auto t) { out.setBackend(t); });
  put(r.spec.image, [&](auto t) { out.setImage(t); });
  put(r.spec.workspace, [&](auto t) { out.setWorkspace(t); });
  put_texts(out.initToolkits(static_cast<unsigned>(r.spec.toolkits.size())), r.spec.toolkits);
  out.setCreatedUnixMs(r.created_unix_ms);
  out.setEndedUnixMs(r.ended_unix_ms);
  put_texts(out.initWarnings(static_cast<unsigned>(r.spec.warnings.size())), r.spec.warnings);
  put(r.detail, [&](auto t) { out.setCauseDetail(t); });
  out.setCpuMillis(r.spec.limits.cpu_millis);
  out.setMemoryMb(static_cast<std::uint32_t>(r.spec.limits.memory_bytes >> 20U));
  out.setCommandsRunning(view.commands_running);
  out.setDetached(!r.lease);
  auto labels = out.initLabels(static_cast<unsigned>(r.spec.labels.size()));
  for (unsigned i = 0; i < labels.size(); ++i) {
    put(r.spec.labels[i].first, [&](auto t) { labels[i].setName(t); });
    put(r.spec.labels[i].second, [&](auto t) { labels[i].setValue(t); });
  }
}

std::size_t listed_bytes(const sandbox_view& view) {
  const auto& s = view.record->spec;
  std::size_t bytes = 512 + view.record->detail.size() + s.image.size() + s.workspace.size();
  for (const auto& t : s.toolkits) bytes += t.size() + 24;
  for (const auto& w : s.warnings) bytes += w.size() + 24;
  for (const auto& [name, value] : s.labels) bytes += name.size() + value.size() + 48;
  return bytes;
}

void put_exit(proto::Command::Builder out, const command& c, const command_output& output) {
  out.setExitCode(c.exit.exit_code);
  out.setSignal(static_cast<std::uint32_t>(c.exit.signal));
  out.setTimedOut(c.exit.timed_out);
  out.setOomKilled(c.exit.oom_killed);
  out.setStdout(raw(output.out));
  out.setStderr(raw(output.err));
  out.setStdoutTotal(c.exit.stdout_total);
  out.setStderrTotal(c.exit.stderr_total);
  out.setStdoutTruncated(c.exit.stdout_total > c.output_cap);
  out.setStderrTruncated(c.exit.stderr_total > c.output_cap);
  out.setDurationUs(static_cast<std::uint64_t>(c.exit.duration.count()));
}

void put_command(proto::Command::Builder out, std::string_view sandbox_id, const command& c,
                 const command_output& output) {
  put(sandbox_id, [&](auto t) { out.setSandboxId(t); });
  put(c.id, [&](auto t) { out.setCommandId(t); });
  put_texts(out.initArgv(static_cast<unsigned>(c.argv.size())), c.argv);
  if (c.now != command::state::starting && c.now != command::state::refused)
    out.setStartedUnixMs(base::unix_ms(c.started));
  switch (c.now) {
    case command::state::starting:
    case command::state::running:
      out.setState(proto::CommandState::RUNNING);
      break;
    case command::state::ended:
      out.setState(proto::CommandState::ENDED);
      put_exit(out, c, output);
      break;
    case command::state::refused:
      out.setState(proto::CommandState::UNKNOWN);
      break;
    case command::state::lost:
      out.setState(proto::CommandState::LOST);
      break;
  }
}

void put_event(proto::Event::Builder out, const std::string& edge, const event& e) {
  put(edge, [&](auto t) { out.setEdge(t); });
  out.setSeq(e.seq);
  out.setUnixMs(base::unix_ms(e.at));
  put(to_string(e.kind), [&](auto t) { out.setKind(t); });
  put(e.sandbox_id, [&](auto t) { out.setSandboxId(t); });
  put(e.command_id, [&](auto t) { out.setCommandId(t); });
  put(e.trace, [&](auto t) { out.setTraceId(t); });
  put(e.detail, [&](auto t) { out.setDetail(t); });
  put(e.cause, [&](auto t) { out.setCause(t); });
  out.setExitCode(e.exit_code);
}

}  // namespace

proto::frame error_reply(std::uint64_t id, const base::error& why, std::string_view object) {
  return build(id, [&](auto body) {
    auto out = body.initError();
    put(base::to_string(why.code), [&](auto t) { out.setCode(t); });
    const auto message = why.sentence();
    put(message, [&](auto t) { out.setMessage(t); });
    put(object.empty() ? std::string_view(why.object) : object, [&](auto t) { out.setObject(t); });
    out.setRetryable(base::retryable(why.code));
  });
}

proto::frame hello_reply(std::uint64_t id, const hello_answer& agreed) {
  return build(id, [&](auto body) {
    auto out = body.initHello();
    out.setProtocolVersion(agreed.version);
    out.setServer("dsecd");
    put(agreed.edge, [&](auto t) { out.setEdge(t); });
    out.setMaxMessageBytes(static_cast<std::uint32_t>(proto::max_message_bytes));
    out.setPacking(agreed.packed ? proto::Packing::PACKED : proto::Packing::NONE);
    out.initFeatures(1).set(0, proto::feature_streams);
    out.setMaxInFlight(static_cast<std::uint32_t>(proto::max_in_flight));
    out.setMaxStreams(static_cast<std::uint32_t>(proto::max_streams));
  });
}

proto::frame pong_reply(std::uint64_t id) {
  return build(id, [](auto body) { body.setPong(); });
}

proto::frame sandbox_reply(std::uint64_t id, const sandbox_view& sandbox) {
  return build(id, [&](auto body) { put_sandbox(body.initSandbox(), sandbox); });
}

proto::frame sandboxes_reply(std::uint64_t id, const std::vector<sandbox_view>& sandboxes) {
  std::size_t count = 0;
  for (std::size_t bytes = 0; count < sandboxes.size(); ++count) {
    bytes += listed_bytes(sandboxes[count]);
    if (bytes > most_listed_bytes) break;
  }
  const auto fill = [&](auto body) {
    auto list = body.initSandboxes(static_cast<unsigned>(count));
    for (unsigned i = 0; i < count; ++i) put_sandbox(list[i], sandboxes[i]);
  };
  return build(id, fill, count < sandboxes.size());
}

proto::frame command_reply(std::uint64_t id, std::string_view sandbox_id, const command& c,
                           const command_output& output) {
  return build(id, [&](auto body) { put_command(body.initCommand(), sandbox_id, c, output); });
}

proto::frame without_output(const proto::frame& answer) {
  proto::frame out = answer;
  static_cast<void>(proto::view<proto::Reply>(answer).read([&](proto::Reply::Reader reply) {
    if (reply.getBody().isOutput() && reply.getBody().getOutput().getData().size() > 0) {
      // Not the end, whatever comes after it.
      out = output_reply(reply.getId(), {{}, reply.getBody().getOutput().getOffset()}, {});
    }
    if (!reply.getBody().isCommand()) return;
    capnp::MallocMessageBuilder whole;
    whole.setRoot(reply);
    auto c = whole.getRoot<proto::Reply>().getBody().getCommand();
    c.disownStdout();
    c.disownStderr();
    // What was disowned leaves a hole; a copy has none.
    capnp::MallocMessageBuilder compact;
    compact.setRoot(whole.getRoot<proto::Reply>().asReader());
    out = proto::frame::from_builder(compact);
  }));
  return out;
}

proto::frame commands_reply(std::uint64_t id, std::string_view sandbox_id,
                            const std::vector<const command*>& list) {
  // Newest first when not all fit: 4096 kept results with arguments of 4 KiB each are the most
  // there can be.
  std::size_t bytes = 0;
  std::size_t count = 0;
  for (auto c = list.rbegin(); c != list.rend(); ++c, ++count) {
    bytes += 512;
    for (const auto& a : (*c)->argv) bytes += a.size() + 16;
    if (bytes > most_listed_bytes) break;
  }
  const auto first = list.size() - count;
  const auto fill = [&](auto body) {
    auto out = body.initCommands(static_cast<unsigned>(count));
    for (unsigned i = 0; i < count; ++i) put_command(out[i], sandbox_id, *list[first + i], {});
  };
  return build(id, fill, first > 0);
}

proto::frame output_reply(std::uint64_t id, const backends::output_piece& piece,
                          std::optional<std::uint64_t> total) {
  return build(id, [&](auto body) {
    auto out = body.initOutput();
    out.setData(raw(piece.data));
    out.setOffset(piece.offset);
    out.setTotal(total.value_or(piece.offset + piece.data.size()));
    out.setEnded(total.has_value());
  });
}

proto::frame lost_output_reply(std::uint64_t id, std::uint64_t total) {
  return build(id, [&](auto body) {
    auto out = body.initOutput();
    out.setOffset(total);
    out.setTotal(total);
    out.setEnded(true);
    out.setLost(true);
  });
}

proto::frame file_data_reply(std::uint64_t id, std::string_view content, std::uint64_t offset,
                             std::uint64_t size) {
  return build(id, [&](auto body) {
    auto out = body.initFileData();
    out.setData(raw(content));
    out.setOffset(offset);
    out.setSize(size);
    // Files of sysfs say that they are larger than they are.
    out.setEndOfFile(content.empty() || offset + content.size() >= size);
  });
}

proto::frame file_written_reply(std::uint64_t id, std::uint64_t size) {
  return build(id, [&](auto body) { body.initFileWritten().setSize(size); });
}

proto::frame events_reply(std::uint64_t id, const event_page& page, const std::string& edge,
                          const std::string& epoch) {
  std::size_t count = 0;
  for (std::size_t bytes = 0; count < page.events.size(); ++count) {
    const auto& e = page.events[count];
    bytes += 256 + e.sandbox_id.size() + e.command_id.size() + e.trace.size() + e.detail.size();
    if (bytes > most_event_bytes && count > 0) break;
  }
  event_cursor next;
  const bool whole = count == page.events.size();
  next.set(edge, {epoch, whole ? page.last : page.events[count - 1].seq});
  return build(id, [&](auto body) {
    auto out = body.initEvents();
    put(next.text(), [&](auto t) { out.setCursor(t); });
    out.setDropped(page.dropped);
    auto list = out.initEvents(static_cast<unsigned>(count));
    for (unsigned i = 0; i < count; ++i) put_event(list[i], edge, page.events[i]);
  });
}

proto::frame usage_reply(std::uint64_t id, const backends::usage& used) {
  return build(id, [&](auto body) {
    auto out = body.initUsage();
    out.setMemoryBytes(used.memory_bytes);
    out.setCpuUsec(used.cpu_usec);
    out.setTasks(used.tasks);
  });
}

proto::frame node_reply(std::uint64_t id, const node_view& node) {
  return build(id, [&](auto body) {
    auto out = body.initNodes(1)[0];
    put(node.edge, [&](auto t) { out.setEdge(t); });
    out.setSandboxes(node.sandboxes);
    out.setCreates(static_cast<std::uint32_t>(node.creates));
    out.setSlotsReady(node.slots_ready);
    out.setMemoryTotalBytes(node.memory.total);
    out.setMemoryAvailableBytes(node.memory.available);
    out.setMemoryAdmittedBytes(node.admitted_bytes);
    std::vector<std::string> reasons;
    reasons.reserve(node.unhealthy.size());
    for (const auto& [subject, reason] : node.unhealthy) reasons.push_back(subject + ": " + reason);
    put_texts(out.initUnhealthy(static_cast<unsigned>(reasons.size())), reasons);
  });
}

proto::frame images_reply(std::uint64_t id, const std::vector<fs::image>& images) {
  return build(id, [&](auto body) {
    auto list = body.initImages(static_cast<unsigned>(images.size()));
    for (unsigned i = 0; i < images.size(); ++i) {
      const auto& image = images[i];
      put(image.name, [&](auto t) { list[i].setName(t); });
      put(image.tag, [&](auto t) { list[i].setTag(t); });
      put(fs::to_string(image.kind), [&](auto t) { list[i].setKind(t); });
      const auto digest = "sha256:" + image.digest;
      put(digest, [&](auto t) { list[i].setDigest(t); });
      list[i].setSizeBytes(image.size_bytes);
      list[i].setCreatedUnixMs(image.created_unix_ms);
    }
  });
}

}  // namespace dsec::actors
