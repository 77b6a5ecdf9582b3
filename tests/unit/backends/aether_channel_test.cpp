// dsecd's end of a channel against the far end of a socket pair played by the test.
#include "backends/container/aether_channel.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <future>

#include "backends/sys/datagram.hpp"
#include "support/eventually.hpp"

using namespace dsec;
using namespace dsec::container;
using namespace std::chrono_literals;
using base::errc;

namespace {

struct far_end {
  sys::unique_fd socket;

  /// The next datagram; waits for it.
  std::vector<std::byte> receive() {
    const auto until = sys::after(5s);
    std::vector<std::byte> buffer(guest::max_datagram);
    while (sys::remaining_ms(until) > 0) {
      const auto got = sys::receive_datagram(socket.get(), buffer);
      REQUIRE(got);
      if (got->state == sys::receive_state::data) {
        buffer.resize(got->size);
        return buffer;
      }
      std::this_thread::yield();
    }
    FAIL("nothing was sent");
    return {};
  }
  guest::header receive_header() {
    guest::header h;
    std::memcpy(&h, receive().data(), sizeof h);
    return h;
  }
  template <class Body>
  void send(guest::msg type, const Body& body, std::uint32_t seq) {
    std::vector<std::byte> out(sizeof(guest::header) + sizeof body);
    const guest::header h{static_cast<std::uint16_t>(type), 0,
                          static_cast<std::uint32_t>(out.size()), seq, 0};
    std::memcpy(out.data(), &h, sizeof h);
    std::memcpy(out.data() + sizeof h, &body, sizeof body);
    REQUIRE(sys::send_datagram(socket.get(), out) == true);
  }
};

struct channel_pair {
  std::unique_ptr<sys::event_loop> loop = *sys::event_loop::start("test");
  far_end far;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<incoming> received;
  std::vector<std::string> closed;
  std::function<void()> on_receive;  // set before anything is sent
  std::unique_ptr<aether_channel> channel;

  explicit channel_pair(aether_channel::before said = aether_channel::before::silence,
                        guest::versions spoken = guest::channel_versions) {
    auto ends = sys::datagram_pair();
    REQUIRE(ends);
    far.socket = std::move(ends->second);
    channel_events events;
    events.receive = [this](incoming in) {
      std::unique_lock lock(mutex);
      received.push_back(std::move(in));
      changed.notify_all();
      lock.unlock();
      if (on_receive) on_receive();
    };
    events.closed = [this](std::string why) {
      const std::scoped_lock lock(mutex);
      closed.push_back(std::move(why));
      changed.notify_all();
    };
    channel = *aether_channel::open(*loop, std::move(ends->first), events, said, spoken);
  }
  bool wait(const std::function<bool()>& done) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 5s, done);
  }
};

guest::started_body started(const char* id) {
  guest::started_body body{};
  std::strcpy(body.id, id);
  return body;
}

}  // namespace

TEST_CASE("the handshake needs a hello of a version that is spoken") {
  const auto [version, good] = GENERATE(
      table<std::uint32_t, bool>({{2, false}, {3, true}, {4, true}, {5, true}, {6, false}}));
  channel_pair p(aether_channel::before::silence, {.oldest = 3, .current = 5});
  auto shaking =
      std::async(std::launch::async, [&] { return p.channel->handshake(sys::after(5s)); });
  CHECK(p.far.receive_header().type == static_cast<std::uint16_t>(guest::msg::hello));
  p.far.send(guest::msg::hello, guest::hello_body{version, 0, 0}, 0);
  const auto outcome = shaking.get();
  CHECK(outcome.has_value() == good);
  if (!good) CHECK(outcome.error().code == errc::unsupported);
}

TEST_CASE("a handshake without an answer ends at its deadline or with aether's death") {
  channel_pair p;
  CHECK(p.channel->handshake(sys::after(20ms)).error().code == errc::deadline_exceeded);
  p.far.socket.reset();
  REQUIRE(p.wait([&] { return p.closed.size() == 1; }));
  CHECK(p.channel->handshake(sys::after(5s)).error().code == errc::sandbox_failed);
}

TEST_CASE("repetitions are dropped and what was received is acknowledged") {
  channel_pair p;
  p.far.send(guest::msg::started, started("a"), 1);
  p.far.send(guest::msg::started, started("a"), 1);
  p.far.send(guest::msg::started, started("b"), 2);
  REQUIRE(p.wait([&] { return p.received.size() == 2; }));
  CHECK(std::get<frame_started>(p.received[1].body).id == "b");
  // Acknowledged is what has been handled, so the number comes a moment after the call.
  guest::header h{};
  std::uint32_t sent = 0;
  CHECK(test::eventually([&] {
    REQUIRE(p.channel->send(encode_id(guest::msg::kill, "a")));
    h = p.far.receive_header();
    CHECK(h.seq == ++sent);
    return h.ack == 2;
  }));
}

TEST_CASE("what is being handled is not acknowledged yet") {
  channel_pair p;
  std::promise<void> go;
  auto may_go = go.get_future();
  p.on_receive = [&] { may_go.wait(); };
  p.far.send(guest::msg::started, started("a"), 1);
  REQUIRE(p.wait([&] { return p.received.size() == 1; }));
  REQUIRE(p.channel->send(encode_id(guest::msg::kill, "a")));
  CHECK(p.far.receive_header().ack == 0);
  go.set_value();
  CHECK(test::eventually([&] {
    REQUIRE(p.channel->send(encode_id(guest::msg::kill, "a")));
    return p.far.receive_header().ack == 1;
  }));
}

TEST_CASE("resuming, what another had left unread is passed over and all that is repeated taken") {
  channel_pair p(aether_channel::before::another);
  p.far.send(guest::msg::started, started("unread"), 5);
  REQUIRE(p.channel->resume());
  const auto hello = p.far.receive_header();
  CHECK(hello.type == static_cast<std::uint16_t>(guest::msg::hello));
  CHECK(hello.ack == 0);
  p.far.send(guest::msg::hello, guest::hello_body{guest::channel_version, 0, 0}, 0);
  for (const std::uint32_t seq : {3U, 4U, 5U}) p.far.send(guest::msg::started, started("a"), seq);
  // As when the one before had said hello, too, and died before it read the answer.
  p.far.send(guest::msg::hello, guest::hello_body{guest::channel_version, 0, 0}, 0);
  for (const std::uint32_t seq : {3U, 4U, 5U, 6U})
    p.far.send(guest::msg::started, started("a"), seq);
  REQUIRE(p.wait([&] { return p.received.size() == 4; }));
  std::vector<std::uint32_t> seqs;
  for (const auto& in : p.received) seqs.push_back(in.header.seq);
  CHECK(seqs == std::vector<std::uint32_t>{3, 4, 5, 6});
}

TEST_CASE("an aether of an older version is resumed with") {
  channel_pair p(aether_channel::before::another, {.oldest = 1, .current = 2});
  REQUIRE(p.channel->resume());
  p.far.send(guest::msg::hello, guest::hello_body{1, 0, 0}, 0);
  p.far.send(guest::msg::started, started("a"), 1);
  REQUIRE(p.wait([&] { return p.received.size() + p.closed.size() == 1; }));
  CHECK(p.closed == std::vector<std::string>{});
}

TEST_CASE("an aether of a version that is not spoken is not resumed with") {
  const std::uint32_t version = GENERATE(1U, 4U);  // forgotten; not known yet
  channel_pair p(aether_channel::before::another, {.oldest = 2, .current = 3});
  REQUIRE(p.channel->resume());
  p.far.send(guest::msg::hello, guest::hello_body{version, 0, 0}, 0);
  REQUIRE(p.wait([&] { return p.closed.size() == 1; }));
  CHECK(p.closed[0] ==
        "aether speaks channel version " + std::to_string(version) + ", which this dsecd does not");
}

TEST_CASE("many results are acknowledged although nothing else is sent") {
  channel_pair p;
  for (std::uint32_t i = 1; i <= 40; ++i) p.far.send(guest::msg::started, started("a"), i);
  const auto h = p.far.receive_header();
  CHECK(h.type == static_cast<std::uint16_t>(guest::msg::ping));
  CHECK(h.ack >= 32);
}

TEST_CASE("a reader that does not read fills the queue, then everything arrives in order") {
  channel_pair p;
  std::uint32_t sent = 0;
  base::result<void> last;
  while ((last = p.channel->send(encode_id(guest::msg::kill, "a")))) REQUIRE(++sent < 100'000);
  CHECK(last.error().code == errc::capacity);
  for (std::uint32_t i = 1; i <= sent; ++i) REQUIRE(p.far.receive_header().seq == i);
}

TEST_CASE("the far end's death is told once; then nothing can be sent") {
  channel_pair p;
  p.far.socket.reset();
  REQUIRE(p.wait([&] { return !p.closed.empty(); }));
  CHECK(p.channel->send(encode_plain(guest::msg::ping)).error().code == errc::sandbox_failed);
  p.channel->close();
  CHECK(p.closed.size() == 1);
}

TEST_CASE("garbage closes the channel") {
  channel_pair p;
  const char garbage[] = "this is no datagram of ours at all";
  REQUIRE(sys::send_datagram(p.far.socket.get(), sys::bytes_of(garbage)) == true);
  REQUIRE(p.wait([&] { return p.closed.size() == 1; }));
  CHECK(p.received.empty());
}

TEST_CASE("close() by the owner tells nobody") {
  channel_pair p;
  p.channel->close();
  p.far.socket.reset();
  CHECK(p.channel->send(encode_plain(guest::msg::ping)).error().code == errc::sandbox_failed);
  p.channel.reset();
  CHECK(p.closed.empty());
}
