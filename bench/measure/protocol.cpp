// No-ops through gateway and actors over many connections at once, one on its way on each; and
// connections that say nothing more. One thread: what is measured is the daemon.
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <cstdio>
#include <memory>
#include <vector>

#include "measure/measurements.hpp"
#include "net/client/ws_link.hpp"

namespace dsec::measure {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using client::ws_link;

/// What is sent: hello, and a no-op that may be sent again once it is answered.
struct messages {
  std::string hello, ping;
  bool text = false;
};

std::string bytes_of(const proto::frame& f) {
  return {reinterpret_cast<const char*>(f.bytes().data()), f.bytes().size()};
}

result<messages> encoded(const std::string& encoding) {
  if (encoding == "text") {
    return messages{R"({"id":1,"body":{"hello":{"protocolVersion":1}}})",
                    R"({"id":2,"body":{"ping":null}})", true};
  }
  if (encoding != "binary" && encoding != "packed")
    return fail(errc::invalid_argument, "no encoding '" + encoding + "'");
  const bool packed = encoding == "packed";
  capnp::MallocMessageBuilder hello;
  auto request = hello.initRoot<proto::Request>();
  request.setId(1);
  request.getBody().initHello().setProtocolVersion(proto::protocol_version);
  if (packed) request.getBody().getHello().setPacking(proto::Packing::PACKED);
  capnp::MallocMessageBuilder ping;
  auto no_op = ping.initRoot<proto::Request>();
  no_op.setId(2);
  no_op.getBody().setPing();
  const auto frame = proto::frame::from_builder(ping);
  return messages{bytes_of(proto::frame::from_builder(hello)),
                  packed ? frame.packed() : bytes_of(frame)};
}

/// Says hello and hears the answer.
result<std::unique_ptr<ws_link>> greeted(asio::io_context& context, const subject& s,
                                         const messages& m) {
  DSEC_TRY(auto link, client::open_link(context, s.url, s.key));
  link->text(m.text);
  error_code problem;
  link->write(asio::buffer(m.hello), problem);
  if (problem) return fail(client::link_failed("say hello", problem));
  beast::flat_buffer answer;
  link->read(answer, problem);
  if (problem) return fail(client::link_failed("hear the answer to hello", problem));
  return link;
}

/// One connection that sends the next no-op when the last one is answered.
class pinger {
 public:
  pinger(std::unique_ptr<ws_link> link, const messages& m, const clock::time_point& end,
         std::vector<double>& times, failures& failed)
      : link_(std::move(link)), messages_(m), end_(end), times_(times), failed_(failed) {}

  void next() {
    if (clock::now() >= end_) return;
    sent_ = clock::now();
    link_->async_write(asio::buffer(messages_.ping), [this](error_code problem, std::size_t) {
      if (check("send", problem)) receive();
    });
  }

 private:
  void receive() {
    link_->async_read(buffer_, [this](error_code problem, std::size_t) {
      if (!check("receive", problem)) return;
      times_.push_back(ms_since(sent_));
      buffer_.clear();
      next();
    });
  }

  bool check(const char* doing, error_code problem) {
    if (!problem) return true;
    failed_.take(fail(client::link_failed(doing, problem)));
    return false;
  }

  std::unique_ptr<ws_link> link_;
  const messages& messages_;
  const clock::time_point& end_;
  std::vector<double>& times_;
  failures& failed_;
  clock::time_point sent_;
  beast::flat_buffer buffer_;
};

}  // namespace

result<int> no_ops(const subject& s, int seconds, int connections, const std::string& encoding) {
  DSEC_TRY(const auto m, encoded(encoding));
  asio::io_context context{1};
  failures failed;
  std::vector<double> times;
  clock::time_point end;
  std::vector<std::unique_ptr<pinger>> all;
  for (int i = 0; i < connections; ++i) {
    DSEC_TRY(auto link, greeted(context, s, m));
    all.push_back(std::make_unique<pinger>(std::move(link), m, end, times, failed));
  }
  const auto began = clock::now();
  end = began + std::chrono::seconds(seconds);
  for (const auto& each : all) each->next();
  context.run();
  const double elapsed = ms_since(began);
  for (const double time : times) std::printf("%.4f\n", time);
  std::printf("rate %.1f\n", static_cast<double>(times.size()) * 1e3 / elapsed);
  return failed.report();
}

result<int> idle(const subject& s, int connections) {
  DSEC_TRY(const auto m, encoded("binary"));
  asio::io_context context{1};
  std::vector<std::unique_ptr<ws_link>> all;
  // Before the first one is counted, whatever is made once is there.
  DSEC_TRY(const auto first, greeted(context, s, m));
  say_and_wait("ready");
  for (int i = 0; i < connections; ++i) {
    DSEC_TRY(auto link, greeted(context, s, m));
    all.push_back(std::move(link));
  }
  say_and_wait("connected");
  return failures().report();
}

}  // namespace dsec::measure
