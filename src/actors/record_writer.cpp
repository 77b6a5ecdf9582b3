#include "actors/record_writer.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dsec::actors {
namespace {

std::string id_of(const record_change& change) {
  if (const auto* record = std::get_if<record_ptr>(&change)) return (*record)->id;
  return std::get<erased>(change).id;
}

}  // namespace

record_writer::record_writer(std::unique_ptr<record_store> store,
                             std::function<void(const base::result<void>&)> outcome)
    : store_(std::move(store)), outcome_(std::move(outcome)), thread_([this] { run(); }) {}

record_writer::~record_writer() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  due_.notify_all();
  thread_.join();
}

record_writer::ticket record_writer::save(record_ptr record) {
  auto id = record->id;
  return add(std::move(id), std::move(record));
}

record_writer::ticket record_writer::erase(std::string id) {
  auto key = id;
  return add(std::move(key), erased{std::move(id)});
}

record_writer::ticket record_writer::add(std::string id, record_change change) {
  ticket mine = 0;
  bool wake = false;
  {
    const std::scoped_lock lock(mutex_);
    wake = last_ == done_;
    pending_.insert_or_assign(std::move(id), std::move(change));
    mine = ++last_;
  }
  if (wake) due_.notify_one();
  return mine;
}

void record_writer::hurry(ticket t) {
  {
    const std::scoped_lock lock(mutex_);
    if (done_ >= t || hurried_ >= t) return;
    hurried_ = t;
  }
  due_.notify_one();
}

base::result<void> record_writer::wait(ticket t) {
  std::unique_lock lock(mutex_);
  if (done_ < t) {
    wanted_ = std::max(wanted_, t);
    due_.notify_one();
    written_.wait(lock, [&] { return done_ >= t; });
  }
  for (const auto& f : failed_) {
    if (f.first <= t && t <= f.last) return base::fail(f.why);
  }
  return {};
}

void record_writer::remember_failure(ticket first, ticket last, base::error why) {
  if (!failed_.empty() && failed_.back().last + 1 == first) {
    failed_.back().last = last;
    failed_.back().why = std::move(why);
    return;
  }
  failed_.push_back({first, last, std::move(why)});
  if (failed_.size() <= most_failed) return;
  failed_[1].first = failed_[0].first;
  failed_.pop_front();
}

void record_writer::run() {
  bool failing = false;
  std::unique_lock lock(mutex_);
  while (true) {
    const auto news = [this] { return stopping_ || last_ > done_; };
    failing ? static_cast<void>(due_.wait_for(lock, retry, news)) : due_.wait(lock, news);
    if (pending_.empty()) return;
    const auto wanted = [this] { return stopping_ || wanted_ > done_; };
    due_.wait_for(lock, linger, [&] { return wanted() || hurried_ > done_; });
    due_.wait_for(lock, breath, wanted);
    std::vector<record_change> batch;
    batch.reserve(pending_.size());
    for (auto& [id, change] : pending_) batch.push_back(std::move(change));
    pending_.clear();
    const auto up_to = last_;
    lock.unlock();
    const auto written = store_->apply(batch);
    if (!written || failing) outcome_(written);
    failing = !written;
    lock.lock();
    if (!written) {
      if (up_to > done_) remember_failure(done_ + 1, up_to, written.error());
      for (auto& change : batch) pending_.try_emplace(id_of(change), std::move(change));
    }
    done_ = up_to;
    written_.notify_all();
    if (stopping_ && last_ == done_) return;
  }
}

}  // namespace dsec::actors
