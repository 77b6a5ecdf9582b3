// The listener alone: what a frame costs from a client to the callback and back, without actors.
// Prints one figure per line, in milliseconds.  usage: ws_echo COUNT
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "auth/api_key.hpp"
#include "net/client/ws_client.hpp"
#include "net/listener.hpp"

namespace {

using namespace dsec;

/// A Reply to whatever came.
proto::frame pong() {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<proto::Reply>().getBody().setPong();
  return proto::frame::from_builder(builder);
}

net::listener_callbacks echo() {
  return {.gate = std::make_shared<auth::gate>(
              std::vector{auth::known_key{"k-bench", "bench", auth::hash_of("key")}}),
          .opened =
              [](std::shared_ptr<net::ws_session> s, const net::connection_info&) {
                s->grant(1);
                const std::weak_ptr<net::ws_session> weak = s;
                return net::session_handler{.message =
                                                [weak, answer = pong()](const proto::frame&) {
                                                  const auto session = weak.lock();
                                                  session->grant(1);
                                                  session->send(answer);
                                                },
                                            .malformed = [](const base::error&) {},
                                            .room = {},
                                            .closed = [] {}};
              },
          .get = [](const net::http_get&) { return std::optional<net::http_answer>{}; }};
}

}  // namespace

int main(int argc, char** argv) {
  base::gateway_config config;
  config.port = 0;
  auto door = net::listener::start(config, echo());
  if (argc != 2 || !door) return 2;
  auto client =
      client::ws_client::connect("http://127.0.0.1:" + std::to_string((*door)->port()), "key");
  if (!client) return 1;
  for (int i = 0; i < std::atoi(argv[1]); ++i) {
    const auto began = std::chrono::steady_clock::now();
    const auto reply = client->call([](proto::Request::Builder r) { r.getBody().setPing(); });
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    if (!reply) return 1;
    std::printf("%.4f\n", took.count());
  }
  (*door)->stop();
  return 0;
}
