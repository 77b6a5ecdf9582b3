// Answers listEvents: at once when there is something, else when something has happened or the
// caller's time is over. Belongs to the edge's state, whose thread it runs on; the events
// themselves are the worker's (event_log.hpp) and outlive the edge.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/event_log.hpp"
#include "actors/interfaces.hpp"
#include "actors/waiter.hpp"

namespace dsec::actors {

class event_desk {
 public:
  /// Requests that wait at a time; one more is answered with what there is.
  static constexpr std::size_t max_waiting = 1024;
  static constexpr std::size_t longest_cursor = 256U << 10U;

  event_desk() = default;
  event_desk(const event_desk&) = delete;
  event_desk& operator=(const event_desk&) = delete;
  ~event_desk();

  /// `epoch` is this process's; `wake` is called, on any thread, when look_again() is due.
  void open(std::shared_ptr<event_log> log, std::string edge, std::string epoch,
            std::function<void()> wake);

  struct question {
    event_filter wanted;
    time_point until;  // the answer is due, even if it is that there is nothing
  };
  [[nodiscard]] base::result<question> read(const call& c, proto::ListEvents::Reader request,
                                            time_point now) const;
  /// The answer, unless it is worth waiting for one.
  [[nodiscard]] std::optional<proto::frame> answer_now(const question& q, std::uint64_t id,
                                                       time_point now) const;
  void wait(question q, waiter w);
  /// Something happened.
  void look_again();
  /// Answers those whose time is over; when the next one's is.
  time_point expire(time_point now);

 private:
  struct waiting {
    question asked;
    waiter who;
  };

  [[nodiscard]] proto::frame reply_to(std::uint64_t id, const event_page& page) const;

  std::shared_ptr<event_log> log_;
  std::string edge_, epoch_;
  event_log::reader me_ = 0;
  std::vector<waiting> waiting_;
};

}  // namespace dsec::actors
