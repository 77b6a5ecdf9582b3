#include "stream_requests.hpp"

#include <catch2/catch.hpp>

#include "proto/limits.hpp"

namespace dsec::test {

std::vector<piece> pieces(const client& c, std::uint64_t stream) {
  std::vector<piece> all;
  for (const auto& f : c.session->sent) {
    const auto read = proto::view<proto::Reply>(f).read([&](proto::Reply::Reader r) {
      if (!r.getBody().isStreamData() || r.getBody().getStreamData().getStreamId() != stream)
        return;
      CHECK(r.getId() == 0);
      const auto d = r.getBody().getStreamData();
      const char* names[] = {"none", "complete", "failed"};
      const auto bytes = d.getData();
      all.push_back({std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size()),
                     names[static_cast<int>(d.getEnd())], std::string(d.getError().getCode()),
                     d.getOffset(), d.getTotal()});
    });
    REQUIRE(read);
  }
  return all;
}

std::string together(const std::vector<piece>& all) {
  std::string data;
  for (const auto& p : all) data += p.data;
  return data;
}

client::fill open_output(std::uint64_t stream, const std::string& sandbox, std::uint64_t credit,
                         std::uint64_t offset, const std::string& command) {
  return [=](proto::Request::Builder r) {
    auto o = r.getBody().initOpenStream();
    o.setStreamId(stream);
    o.setCredit(credit);
    auto source = o.initSource().initOutput();
    source.setSandboxId(sandbox.c_str());
    source.setCommandId(command.c_str());
    source.setOffset(offset);
  };
}

client::fill open_file(std::uint64_t stream, const std::string& sandbox, const std::string& path) {
  return [=](proto::Request::Builder r) {
    auto o = r.getBody().initOpenStream();
    o.setStreamId(stream);
    o.setCredit(1U << 20U);
    auto source = o.initSource().initFile();
    source.setSandboxId(sandbox.c_str());
    source.setPath(path.c_str());
  };
}

client::fill credit(std::uint64_t stream, std::uint64_t bytes) {
  return [=](proto::Request::Builder r) {
    auto c = r.getBody().initStreamCredit();
    c.setStreamId(stream);
    c.setBytes(bytes);
  };
}

client::fill close_stream(std::uint64_t stream) {
  return [=](proto::Request::Builder r) { r.getBody().initCloseStream().setStreamId(stream); };
}

client::fill read_when_there(const std::string& sandbox, std::uint64_t offset,
                             std::uint32_t wait_ms) {
  return [=](proto::Request::Builder r) {
    auto read = r.getBody().initReadOutput();
    read.setSandboxId(sandbox.c_str());
    read.setCommandId("c1");
    read.setOffset(offset);
    read.setLength(proto::max_output_bytes);
    read.setWaitMs(wait_ms);
  };
}

client::fill hold(const std::string& sandbox, const std::string& command) {
  return exec(sandbox, command, [](auto e) { e.initArgv(1).set(0, "hold"); });
}

std::string with_held_command(node_fixture& node, client& c) {
  const auto id = node.running_sandbox(c);
  c.ask(hold(id));
  return id;
}

}  // namespace dsec::test
