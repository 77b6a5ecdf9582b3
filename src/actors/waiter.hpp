// Requests that are not answered yet, and those whose answer a pool job makes. Belong to one
// actor's state.
#pragma once

#include <caf/send.hpp>
#include <caf/typed_response_promise.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "actors/interfaces.hpp"
#include "actors/replies.hpp"
#include "base/worker_pool.hpp"

namespace dsec::actors {

using reply_promise = caf::typed_response_promise<reply>;

struct waiter {
  reply_promise promise;
  std::uint64_t id = 0;  // of the request
  time_point deadline;
  std::weak_ptr<const caller> from{};

  /// The connection that asked: nobody will hear the answer.
  [[nodiscard]] bool gone() const { return from.expired(); }

  void answer(proto::frame f) { promise.deliver(reply(std::move(f))); }
  void refuse(const base::error& why, std::string_view object = {}) {
    answer(error_reply(id, why, object));
  }
  /// The actor that should have answered goes down.
  void abandon() { promise.deliver(caf::make_error(caf::sec::request_receiver_down)); }
};

/// To oneself: a pool job made the answer to a request.
struct answer_made {
  std::uint64_t token = 0;
  reply answer;
};

/// Answers made on a pool. A late one is the connection's to report: what a pool runs cannot be
/// called back.
class answer_desk {
 public:
  answer_desk() = default;
  ~answer_desk() {
    for (auto& [token, w] : waiting_) w.abandon();
  }
  answer_desk(const answer_desk&) = delete;
  answer_desk& operator=(const answer_desk&) = delete;

  /// `me` takes answer_made. A full pool is the answer too, and false.
  template <class Handle>
  bool hand_out(const Handle& me, base::executor& pool, waiter w,
                std::function<proto::frame()> job) {
    const auto token = ++last_token_;
    auto submitted = pool.submit([me, token, job = std::move(job)] {
      caf::anon_send(me, answer_made{token, reply(job())});
    });
    if (!submitted) {
      w.refuse(submitted.error());
      return false;
    }
    waiting_.emplace(token, std::move(w));
    return true;
  }

  void deliver(const answer_made& m) {
    auto found = waiting_.extract(m.token);
    if (found) found.mapped().answer(m.answer.frame());
  }

 private:
  std::unordered_map<std::uint64_t, waiter> waiting_;
  std::uint64_t last_token_ = 0;
};

}  // namespace dsec::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::answer_made)
