#include "net/turns.hpp"

#include <boost/asio/post.hpp>
#include <utility>

namespace dsec::net {

void turns::post(const std::string& who, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    lines_[who].push_back(std::move(work));
  }
  boost::asio::post(thread_, [this] { do_next(); });
}

/// As often as there is work.
void turns::do_next() {
  std::function<void()> work;
  {
    const std::lock_guard lock(mutex_);
    auto it = lines_.upper_bound(last_);
    if (it == lines_.end()) it = lines_.begin();
    work = std::move(it->second.front());
    it->second.pop_front();
    last_ = it->first;
    if (it->second.empty()) lines_.erase(it);
  }
  work();
}

}  // namespace dsec::net
