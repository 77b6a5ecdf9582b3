#include "actors/ledger.hpp"

#include <algorithm>
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

std::optional<std::chrono::steady_clock::time_point> create_askers::all_gone() const {
  if (claimed || list.empty()) return std::nullopt;
  auto last = std::chrono::steady_clock::time_point::min();
  for (const auto& a : list) {
    if (!a.gone) return std::nullopt;
    last = std::max(last, *a.gone);
  }
  return last;
}

const write_log::write* write_log::find(const std::string& command_id) const {
  const auto it = known_.find(command_id);
  return it == known_.end() ? nullptr : &it->second;
}

std::optional<std::string> write_log::begin(const std::string& command_id, std::string path) {
  known_.insert_or_assign(command_id, write{std::move(path), std::nullopt});
  order_.push_back(command_id);
  if (order_.size() <= most) return std::nullopt;
  auto oldest = std::move(order_.front());
  order_.pop_front();
  const auto dropped = known_.extract(oldest);
  const bool failed = dropped && dropped.mapped().outcome && !*dropped.mapped().outcome;
  return failed ? std::optional(std::move(oldest)) : std::nullopt;
}

void write_log::end(const std::string& command_id, base::result<std::uint64_t> outcome) {
  const auto it = known_.find(command_id);
  if (it != known_.end()) it->second.outcome = std::move(outcome);
}

bool write_log::has_ended(const std::string& command_id) const {
  const auto* known = find(command_id);
  return known != nullptr && known->outcome;
}

void write_log::withdraw(const std::string& command_id) {
  if (known_.erase(command_id) > 0) std::erase(order_, command_id);
}

ledger::ledger(sandbox_record r) : record(std::move(r)), trace(record.spec.trace) {
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
