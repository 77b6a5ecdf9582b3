// A small synchronous client of the gateway, for `dsecd smoke` and benches: one WebSocket, one
// request at a time. Blocks; one thread per object. A call that fails on the connection leaves the
// client unusable.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "proto/client.capnp.h"
#include "proto/frame.hpp"

namespace dsec::client {

/// A Reply that holds a body other than `error`. Read it on the thread that has it.
class reply {
 public:
  explicit reply(proto::frame f);
  [[nodiscard]] proto::Reply::Body::Reader body() const { return body_; }

 private:
  friend class ws_client;
  proto::frame frame_;
  std::unique_ptr<capnp::FlatArrayMessageReader> reader_;
  proto::Reply::Body::Reader body_;
};

class ws_client {
 public:
  /// `url` is http://ADDRESS:PORT or ws://ADDRESS:PORT with a literal IPv4 address. Says hello.
  static base::result<ws_client> connect(const std::string& url, const std::string& key);
  ~ws_client();
  ws_client(ws_client&&) noexcept;
  ws_client& operator=(ws_client&&) noexcept;

  /// Sends the request that `fill` makes (its id is set here) and waits for its reply. A reply that
  /// is an error becomes one, with its code and message.
  base::result<reply> call(const std::function<void(proto::Request::Builder)>& fill);

 private:
  struct link;
  explicit ws_client(std::unique_ptr<link> l);
  base::result<void> send(const proto::frame& f);
  base::result<proto::frame> receive();

  std::unique_ptr<link> link_;
};

}  // namespace dsec::client
