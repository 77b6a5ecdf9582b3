#include "backends/fake/host.hpp"

#include <stdexcept>
#include <utility>

#include "backends/fake/sandbox.hpp"

namespace dsec::fake {
namespace {

std::shared_ptr<sandbox> must_be(std::shared_ptr<sandbox> found, const std::string& id) {
  if (!found) throw std::logic_error("no fake sandbox " + id);
  return found;
}

}  // namespace

void host::fail(const std::string& sandbox_id, base::cause why, std::string detail) {
  must_be(find(sandbox_id), sandbox_id)->fail(why, std::move(detail));
}

void host::finish(const std::string& sandbox_id, const std::string& command_id, const fate& f) {
  must_be(find(sandbox_id), sandbox_id)->finish(command_id, f);
}

void host::write(const std::string& sandbox_id, const std::string& command_id,
                 std::string_view text) {
  must_be(find(sandbox_id), sandbox_id)->write(command_id, text);
}

void host::lose(const std::string& sandbox_id) {
  must_be(find(sandbox_id), sandbox_id)
      ->fail(base::cause::lost, "its launcher ended and it with it");
}

void host::vanish(const std::string& sandbox_id) {
  remove(sandbox_id);
}

void host::hold_news(bool on) {
  const std::scoped_lock lock(mutex_);
  news_held_ = on;
}

void host::release_news() {
  hold_news(false);
  for (const auto& s : all()) s->tell_news();
}

std::size_t host::live() const {
  std::size_t n = 0;
  for (const auto& s : all()) n += s->lives() ? 1 : 0;
  return n;
}

std::size_t host::known() const {
  const std::scoped_lock lock(mutex_);
  return sandboxes_.size();
}

std::vector<std::string> host::steps() const {
  const std::scoped_lock lock(mutex_);
  return steps_;
}

std::vector<backends::start_spec> host::started() const {
  const std::scoped_lock lock(mutex_);
  return started_;
}

void host::keep_steps(bool on) {
  const std::scoped_lock lock(mutex_);
  keep_steps_ = on;
}

void host::count(const backends::backend_stats& stats) {
  const std::scoped_lock lock(mutex_);
  stats_ = stats;
}

backends::backend_stats host::stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

base::result<void> host::step(std::string_view what, const std::string& sandbox_id) const {
  if (!script_.on_step) return {};
  return script_.on_step(what, sandbox_id);
}

std::shared_ptr<sandbox> host::find(const std::string& sandbox_id) const {
  const std::scoped_lock lock(mutex_);
  const auto it = sandboxes_.find(sandbox_id);
  return it == sandboxes_.end() ? nullptr : it->second;
}

std::shared_ptr<sandbox> host::make(const backends::start_spec& spec) {
  auto made = std::make_shared<sandbox>(*this, spec.sandbox_id);
  const std::scoped_lock lock(mutex_);
  sandboxes_.insert_or_assign(spec.sandbox_id, made);
  if (keep_steps_) started_.push_back(spec);
  return made;
}

void host::remove(const std::string& sandbox_id) {
  std::shared_ptr<sandbox> gone;  // its end is not for under the lock
  const std::scoped_lock lock(mutex_);
  const auto it = sandboxes_.find(sandbox_id);
  if (it == sandboxes_.end()) return;
  gone = std::move(it->second);
  sandboxes_.erase(it);
}

void host::detach(const std::shared_ptr<const void>& owner) {
  for (const auto& s : all()) s->detach(owner);
}

void host::end_all_but(const std::shared_ptr<const void>& owner) {
  for (const auto& s : all()) {
    if (s->is_heard_by(owner)) continue;
    if (s->lives()) note("end " + s->id());
    static_cast<void>(s->stop());
    remove(s->id());
  }
}

void host::note(std::string step) {
  const std::scoped_lock lock(mutex_);
  if (keep_steps_) steps_.push_back(std::move(step));
}

bool host::news_held() const {
  const std::scoped_lock lock(mutex_);
  return news_held_;
}

void host::later(std::chrono::milliseconds delay, std::function<void()> call) {
  timer_.after(delay, std::move(call));
}

std::vector<std::shared_ptr<sandbox>> host::all() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<sandbox>> out;
  out.reserve(sandboxes_.size());
  for (const auto& [id, s] : sandboxes_) out.push_back(s);
  return out;
}

}  // namespace dsec::fake
