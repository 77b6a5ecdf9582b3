#include "actors/command_table.hpp"

#include <algorithm>

#include "base/ids.hpp"
#include "base/text.hpp"

namespace dsec::actors {
namespace {

constexpr std::size_t longest_character = 4;  // of UTF-8

std::vector<std::string> shown(const std::vector<std::string>& argv) {
  std::vector<std::string> out;
  std::size_t left = command_table::max_shown_argv;
  for (const auto& argument : argv) {
    if (left < longest_character) break;  // the one before was cut
    out.push_back(base::shown(argument, left));
    left -= out.back().size();
  }
  return out;
}

}  // namespace

std::uint64_t command::kept_bytes() const {
  return std::min(exit.stdout_total, output_cap) + std::min(exit.stderr_total, output_cap);
}

const command* command_table::find(const std::string& id) const {
  const auto it = kept_.find(id);
  return it == kept_.end() ? nullptr : &it->second;
}

bool command_table::used_up(const std::string& id) const {
  return used_up_.contains(base::id_hash(id));
}

base::result<void> command_table::add(const backends::exec_spec& spec, const std::string& trace) {
  if (kept_.size() + used_up_.size() >= max_ids) {
    return base::fail(base::errc::capacity, "this sandbox has run " + std::to_string(max_ids) +
                                                " commands, the most it remembers; create another");
  }
  command c;
  c.id = spec.id;
  c.argv = shown(spec.argv);
  c.trace = trace;
  c.output_cap = spec.output_cap;
  kept_.emplace(spec.id, std::move(c));
  order_.push_back(spec.id);
  ++live_;
  return {};
}

void command_table::restore(const backends::known_command& known) {
  command c;
  c.id = known.id;
  c.argv = shown(known.argv);
  c.output_cap = known.output_cap;
  if (known.started) {
    c.now = command::state::running;
    c.started = *known.started;
  }
  if (!kept_.emplace(known.id, std::move(c)).second) return;
  order_.push_back(known.id);
  ++live_;
  if (const auto* e = std::get_if<backends::command_failed>(&known.end)) failed(*e);
  if (const auto* e = std::get_if<backends::command_exited>(&known.end)) exited(*e);
}

void command_table::restore_used_up(const std::vector<std::uint64_t>& hashes) {
  used_up_.insert(hashes.begin(), hashes.end());
}

void command_table::withdraw(const std::string& id) {
  const auto it = kept_.find(id);
  if (it == kept_.end()) return;
  if (it->second.over()) {
    kept_bytes_ -= it->second.kept_bytes();
    std::erase(over_, id);
  } else {
    --live_;
  }
  kept_.erase(it);
  std::erase(order_, id);
}

command* command_table::live_command(const std::string& id) {
  const auto it = kept_.find(id);
  return it == kept_.end() || it->second.over() ? nullptr : &it->second;
}

void command_table::want_kill(const std::string& id) {
  if (auto* c = live_command(id)) c->kill_wanted = true;
}

void command_table::close(command& c, command::state how) {
  c.now = how;
  kept_bytes_ += c.kept_bytes();
  over_.push_back(c.id);
  --live_;
}

bool command_table::started(const backends::command_started& event) {
  auto* c = live_command(event.id);
  if (c == nullptr) return false;
  c->now = command::state::running;
  c->started = event.at;
  return true;
}

bool command_table::failed(const backends::command_failed& event) {
  auto* c = live_command(event.id);
  if (c == nullptr) return false;
  c->why = event.why;
  close(*c, command::state::refused);
  return true;
}

bool command_table::exited(const backends::command_exited& event) {
  auto* c = live_command(event.id);
  if (c == nullptr) return false;
  c->exit = event;
  c->started = event.started;
  close(*c, command::state::ended);
  return true;
}

std::vector<std::string> command_table::lose_all(const base::error& why) {
  std::vector<std::string> lost;
  for (auto& [id, c] : kept_) {
    if (c.over()) continue;
    c.why = why;
    close(c, command::state::lost);
    lost.push_back(id);
  }
  return lost;
}

std::vector<std::string> command_table::evict() {
  std::vector<std::string> gone;
  if (over_.size() < max_results + evict_batch && kept_bytes_ <= max_kept_bytes) return gone;
  // The newest result always stays, however large.
  while (over_.size() > max_results || (kept_bytes_ > max_kept_bytes && over_.size() > 1)) {
    auto id = std::move(over_.front());
    over_.pop_front();
    kept_bytes_ -= kept_.at(id).kept_bytes();
    kept_.erase(id);
    used_up_.insert(base::id_hash(id));
    gone.push_back(std::move(id));
  }
  if (order_.size() > 2 * kept_.size() + 64) {
    std::erase_if(order_, [&](const std::string& id) { return !kept_.contains(id); });
  }
  return gone;
}

std::vector<const command*> command_table::all() const {
  std::vector<const command*> out;
  for (const auto& id : order_) {
    if (const auto* c = find(id)) out.push_back(c);
  }
  return out;
}

std::vector<std::string> command_table::all_ids() const {
  std::vector<std::string> out;
  out.reserve(kept_.size());
  for (const auto& [id, c] : kept_) out.push_back(id);
  return out;
}

}  // namespace dsec::actors
