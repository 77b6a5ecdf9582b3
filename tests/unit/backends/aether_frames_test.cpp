// Datagrams between dsecd and aether: what is written is what the contract says, what is malformed
// is refused.
#include "backends/container/aether_frames.hpp"

#include <catch2/catch.hpp>
#include <cstring>

using namespace dsec;
using namespace dsec::container;
using base::errc;

namespace {

template <class Body>
frame_bytes make(guest::msg type, const Body& body, std::uint32_t seq = 1) {
  frame_bytes out(sizeof(guest::header) + sizeof body);
  const guest::header h{static_cast<std::uint16_t>(type), 0, static_cast<std::uint32_t>(out.size()),
                        seq, 0};
  std::memcpy(out.data(), &h, sizeof h);
  std::memcpy(out.data() + sizeof h, &body, sizeof body);
  return out;
}

template <class T>
T at(const frame_bytes& bytes, std::size_t offset) {
  T value;
  REQUIRE(bytes.size() >= offset + sizeof value);
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

backends::exec_spec echo() {
  backends::exec_spec spec;
  spec.id = "c1";
  spec.argv = {"echo", "a b", ""};
  spec.env = {"A=1"};
  spec.cwd = "/tmp";
  spec.user = "joe";
  spec.timeout = std::chrono::milliseconds(1500);
  return spec;
}

}  // namespace

TEST_CASE("an exec carries its strings in order, each with its terminator") {
  const auto frame = encode_exec(echo(), 8192);
  REQUIRE(frame);
  CHECK(frame->payload.empty());
  const auto header = at<guest::header>(frame->datagram, 0);
  CHECK(header.type == static_cast<std::uint16_t>(guest::msg::exec));
  CHECK(header.length == frame->datagram.size());
  const auto body = at<guest::exec_body>(frame->datagram, sizeof header);
  CHECK(std::string(body.id) == "c1");
  CHECK(body.argc == 3);
  CHECK(body.envc == 1);
  CHECK(body.timeout_ms == 1500);
  CHECK(body.spool_cap == 8192);
  CHECK(body.payload_fd == 0);
  CHECK(body.flags == guest::exec_no_input);
  const std::string strings(
      reinterpret_cast<const char*>(frame->datagram.data()) + sizeof header + sizeof body,
      body.strings_length);
  CHECK(strings == std::string("echo\0a b\0\0A=1\0/tmp\0joe\0", 23));
}

TEST_CASE("strings that do not fit go to a payload") {
  auto spec = echo();
  spec.stdin_data = "given";
  spec.argv.emplace_back(70'000, 'x');
  const auto frame = encode_exec(spec, 4096);
  REQUIRE(frame);
  const auto body = at<guest::exec_body>(frame->datagram, sizeof(guest::header));
  CHECK(body.payload_fd == 1);
  CHECK(body.flags == 0);
  CHECK(body.strings_length == frame->payload.size());
  CHECK(frame->datagram.size() == sizeof(guest::header) + sizeof body);
}

TEST_CASE("strings that cannot be carried are refused") {
  auto spec = echo();
  spec.argv[1] = std::string("a\0b", 3);
  CHECK(encode_exec(spec, 4096).error().code == errc::invalid_argument);
  spec = echo();
  spec.env.emplace_back(9U << 20U, 'x');
  CHECK(encode_exec(spec, 4096).error().code == errc::too_large);
}

TEST_CASE("datagrams are numbered and acknowledge; pings are not numbered") {
  sequence numbers{4, 9};
  auto kill = encode_id(guest::msg::kill, "c1");
  stamp(kill, numbers);
  CHECK(at<guest::header>(kill, 0).seq == 5);
  CHECK(at<guest::header>(kill, 0).ack == 9);
  auto ping = encode_plain(guest::msg::ping);
  stamp(ping, numbers);
  CHECK(at<guest::header>(ping, 0).seq == 0);
  CHECK(at<guest::header>(ping, 0).ack == 9);
  CHECK(numbers.sent == 5);
}

TEST_CASE("what aether says is decoded") {
  guest::exited_body body{};
  std::strcpy(body.id, "c1");
  body.status = 256;
  body.total[0] = 77;
  const auto in = decode(make(guest::msg::exited, body, 12));
  REQUIRE(in);
  CHECK(in->header.seq == 12);
  const auto& exited = std::get<frame_exited>(in->body);
  CHECK(exited.id == "c1");
  CHECK(exited.body.total[0] == 77);

  guest::failed_body failed{};
  std::strcpy(failed.id, "c2");
  failed.failure = static_cast<std::uint32_t>(guest::failure::no_shell);
  const auto f = decode(make(guest::msg::failed, failed));
  REQUIRE(f);
  CHECK(std::get<frame_failed>(f->body).why == guest::failure::no_shell);
}

TEST_CASE("malformed datagrams are refused") {
  guest::exited_body body{};
  std::strcpy(body.id, "c1");
  const auto good = make(guest::msg::exited, body);
  REQUIRE(decode(good));
  const auto refused = [](frame_bytes bytes) {
    return decode(bytes).error().code == errc::protocol;
  };
  for (std::size_t n = 0; n < good.size(); ++n)
    REQUIRE(refused({good.begin(), good.begin() + static_cast<long>(n)}));
  auto longer = good;
  longer.push_back(std::byte{0});
  CHECK(refused(longer));
  auto wrong_length = good;
  wrong_length[4] = std::byte{1};
  CHECK(refused(wrong_length));
  CHECK(refused(make(static_cast<guest::msg>(999), body)));
  CHECK(refused(make(guest::msg::exec, body)));  // not for us
  guest::exited_body bad_id{};
  CHECK(refused(make(guest::msg::exited, bad_id)));
  std::strcpy(bad_id.id, "../x");
  CHECK(refused(make(guest::msg::exited, bad_id)));
  std::strcpy(bad_id.id, "c1");
  bad_id.id[10] = 'x';  // behind the terminator
  CHECK(refused(make(guest::msg::exited, bad_id)));
}
