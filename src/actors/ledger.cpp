#include "actors/ledger.hpp"

#include <utility>

namespace dsec::actors {

void inbox::add(ledger_event event) {
  const std::scoped_lock lock(mutex_);
  events_.push_back(std::move(event));
  // Called under the lock, so that after wake_with() returned nobody calls the former one. It only
  // sends.
  if (events_.size() == 1 && wake_) wake_();
}

std::vector<ledger_event> inbox::take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(events_, {});
}

void inbox::wake_with(std::function<void()> wake) {
  const std::scoped_lock lock(mutex_);
  wake_ = std::move(wake);
  if (!events_.empty() && wake_) wake_();
}

void sandbox_status::publish(record_ptr record) {
  const std::scoped_lock lock(mutex_);
  record_ = std::move(record);
}

record_ptr sandbox_status::record() const {
  const std::scoped_lock lock(mutex_);
  return record_;
}

ledger::ledger(sandbox_record r) : record(std::move(r)) {
  status.publish(std::make_shared<const sandbox_record>(record));
}

backends::event_sink make_sink(const ledger_ptr& book) {
  const auto add = [weak = std::weak_ptr<ledger>(book)](ledger_event event) {
    if (const auto b = weak.lock()) b->events.add(std::move(event));
  };
  return {.started = [add](backends::command_started e) { add(std::move(e)); },
          .failed = [add](backends::command_failed e) { add(std::move(e)); },
          .exited = [add](backends::command_exited e) { add(std::move(e)); },
          .gone =
              [add](base::cause why, std::string detail) {
                add(instance_gone{why, std::move(detail)});
              }};
}

}  // namespace dsec::actors
