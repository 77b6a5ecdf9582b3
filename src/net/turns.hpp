// One thread that does work of many principals, who take turns: however much one of them has
// waiting, another waits for one piece of it at most. Thread-safe; join() and then nothing more.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace dsec::net {

class turns {
 public:
  ~turns() { join(); }

  /// `work` must not throw. Each principal's is done in its order.
  void post(const std::string& who, std::function<void()> work);
  /// Returns when all of it is done.
  void join() { thread_.join(); }

 private:
  void do_next();

  std::mutex mutex_;
  std::map<std::string, std::deque<std::function<void()>>> lines_;
  std::string last_;  // whose turn it was
  boost::asio::thread_pool thread_{1};
};

}  // namespace dsec::net
