#include "model.hpp"

#include <caf/scoped_actor.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dsec::test {

using namespace std::chrono_literals;
using seconds = std::chrono::seconds;

namespace {

fake::script behaviour(std::map<std::string, int>& runs) {
  fake::script s;
  s.run = [&runs](const backends::exec_spec& spec) {
    fake::fate f;
    const auto& how = spec.argv.at(0);
    f.held = how == "hold";
    f.never_arrives = how == "lost";
    if (how == "busy") f.refused = base::error{base::errc::capacity, "busy", 0};
    if (how == "bad") f.refused = base::error{base::errc::exec_failed, "no such program", 0};
    if (how == "exit") f.exit_code = std::stoi(spec.argv.at(1));
    if (!f.never_arrives && how != "busy") ++runs[spec.id];
    f.out = spec.id;
    return f;
  };
  return s;
}

}  // namespace

model::model(std::uint64_t seed) : random_(seed), node_(behaviour(runs_)) {
  node_.memory = {1ULL << 44U, 1ULL << 44U};
  node_.config.node.retention_seconds = 300;
  node_.restart();
  node_.backend->host()->keep_steps(false);
  for (const auto& [principal, lease, time] : {std::tuple{"alice", "la", 5U},
                                               {"alice", "", 0U},
                                               {"bob", "lb", 9U},
                                               {"alice", "lc", 20U}}) {
    speakers_.push_back({nullptr, principal, lease, time, true, {}});
    lease_seconds_[lease] = time;
  }
  for (auto& s : speakers_) connect(s);
}

void model::connect(speaker& s) {
  const auto greeting = [&](proto::Hello::Builder h) {
    h.setLeaseId(s.lease.c_str());
    h.setLeaseMs(1000 * s.lease_seconds);
  };
  if (s.c) {
    s.c->reconnect(greeting);
  } else {
    s.c = std::make_unique<client>(node_, s.principal, greeting);
  }
  s.connected = true;
  lease_gone_.erase(s.lease);
}

speaker* model::anybody() {
  auto& s = speakers_[draw(speakers_.size())];
  s.c->session->sent.clear();
  return s.connected ? &s : nullptr;
}

/// Living ones three times in four.
model_sandbox* model::one_of(const std::string& principal) {
  std::vector<model_sandbox*> living, ended;
  for (auto& [number, s] : sandboxes_) {
    if (s.owner == principal) (s.alive ? living : ended).push_back(&s);
  }
  auto& from = living.empty() || (!ended.empty() && one_in(4)) ? ended : living;
  return from.empty() ? nullptr : from[draw(from.size())];
}

std::optional<std::string> model::command_of(model_sandbox& s) {
  if (s.commands.empty()) return std::nullopt;
  return std::next(s.commands.begin(), static_cast<long>(draw(s.commands.size())))->first;
}

void model::end(model_sandbox& s, const std::string& phase, const std::string& cause) {
  if (!s.alive) return;
  s.alive = false;
  s.phase = phase;
  s.cause = cause;
  s.forgotten = now() + seconds(node_.config.node.retention_seconds);
  for (auto& [id, c] : s.commands) {
    if (c.now > model_command::state::limbo) continue;
    c.now = model_command::state::lost;
    settle(s.number, id);
  }
  // Retention counts from what the record says.
  if (!node_down_) node_.write_records();
}

/// All who waited for it are answered.
void model::settle(unsigned sandbox, const std::string& command) {
  const auto& c = sandboxes_.at(sandbox).commands.at(command);
  for (auto& who : speakers_) {
    std::erase_if(who.waiting, [&](const auto& w) {
      if (w.second != std::pair(sandbox, command)) return false;
      const auto a = who.c->got(w.first);
      if (a) {
        check_command(*a, c);
      } else {
        FAIL_CHECK("a request that waited was not answered");
      }
      return true;
    });
  }
}

/// What time does by itself.
void model::tick() {
  for (auto& [number, s] : sandboxes_) {
    const auto gone = lease_gone_.find(s.lease);
    const bool leaseless = !s.lease.empty() && gone != lease_gone_.end() &&
                           now() >= gone->second + seconds(lease_seconds_.at(s.lease));
    if ((s.ends && now() >= *s.ends) || leaseless) end(s, "stopped", "ttl");
  }
  std::erase_if(sandboxes_, [&](const auto& entry) {
    const auto& s = entry.second;
    if (!s.forgotten || now() < *s.forgotten) return false;
    const auto key = keys_.find({s.owner, s.key});
    if (key != keys_.end() && key->second.first == s.number) keys_.erase(key);
    for (auto& who : speakers_)
      std::erase_if(who.waiting, [&](const auto& w) { return w.second.first == s.number; });
    return true;
  });
}

void model::wait_a_while() {
  for (auto left = 1 + draw(one_in(20) ? 200 : 4); left > 0; --left) {
    node_.advance(1s, 1s);
    ++now_;
    tick();
  }
}

void model::crash_one() {
  auto* s = one_of(one_in(3) ? "bob" : "alice");
  if (s == nullptr || ++s->crashes > 4) return;
  auto& e = node_.table->sandboxes.at(s->id);
  if (!e.actor) return;
  caf::anon_send_exit(e.actor, caf::exit_reason::kill);
  node_.run();
  // A connection asks again once by itself; who wants to know more asks anew.
  for (auto& who : speakers_)
    std::erase_if(who.waiting, [&](const auto& w) { return w.second.first == s->number; });
}

void model::crash_edge() {
  if (now() - last_edge_crash_ < 61s) return;
  last_edge_crash_ = now();
  caf::scoped_actor self{*node_.system, true};
  auto handle = self->request(node_.root, caf::infinite, actors::get_roots{});
  node_.run();
  handle.receive(
      [](const actors::roots& r) { caf::anon_send_exit(r.edge, caf::exit_reason::kill); },
      [](caf::error&) {});
  node_.run();
}

void model::come_and_go() {
  auto& s = speakers_[draw(speakers_.size())];
  s.waiting.clear();
  if (s.connected) {
    s.c->disconnect();
    s.connected = false;
    if (!s.lease.empty()) lease_gone_[s.lease] = now();
  } else {
    connect(s);
  }
}

/// kill -9, things that happen while nobody is there, and the next node.
void model::restart() {
  if (one_in(4)) {
    node_.leave();
  } else {
    node_.kill9();
  }
  node_down_ = true;
  last_edge_crash_ = seconds(-1000);
  for (auto& who : speakers_) {
    who.waiting.clear();
    who.connected = false;
    if (!who.lease.empty()) lease_gone_[who.lease] = now();
  }
  for (auto& [number, s] : sandboxes_) {
    s.crashes = 0;
    if (!s.alive) continue;
    const bool dies = one_in(20);
    for (auto& [command, c] : s.commands) {
      if (c.now != model_command::state::running || !one_in(4)) continue;
      node_.backend->finish(s.id, command, {.refused = {}, .exit_code = 9, .out = {}, .err = {}});
      if (!dies) c = {model_command::state::ended, 9};  // else nobody ever hears of it
    }
    if (dies) {
      node_.backend->host()->lose(s.id);
      end(s, "failed", "lost");
      continue;
    }
    std::erase_if(s.commands, [](const auto& entry) {
      return entry.second.now == model_command::state::limbo;
    });
  }
  node_.start_again();
  node_down_ = false;
  node_.scheduler().advance_time(0ms);  // what is overdue
  node_.run();
  node_.write_records();
  for (auto& who : speakers_) {
    if (!one_in(5)) connect(who);
  }
}

void model::run(int operations) {
  const std::vector<std::pair<unsigned, operation>> all{{60, &model::create_one},
                                                        {300, &model::exec_one},
                                                        {60, &model::kill_one},
                                                        {120, &model::finish_one},
                                                        {150, &model::look_at_command},
                                                        {100, &model::look_at_sandbox},
                                                        {20, &model::list_all},
                                                        {60, &model::write_one},
                                                        {40, &model::read_one},
                                                        {15, &model::stop_one},
                                                        {10, &model::fail_one},
                                                        {15, &model::detach_one},
                                                        {10, &model::wait_a_while},
                                                        {15, &model::crash_one},
                                                        {2, &model::crash_edge},
                                                        {10, &model::come_and_go},
                                                        {3, &model::restart}};
  unsigned sum = 0;
  for (const auto& [weight, f] : all) sum += weight;
  for (int i = 0; i < operations; ++i) {
    auto at = draw(sum);
    for (const auto& [weight, f] : all) {
      if (at < weight) {
        (this->*f)();
        break;
      }
      at -= weight;
    }
  }
  std::size_t living = 0;
  for (const auto& [number, s] : sandboxes_) living += s.alive ? 1 : 0;
  CHECK(node_.backend->live() == living);
  CHECK(node_.backend->host()->known() == sandboxes_.size());
  CHECK(node_.given_up.empty());
  for (const auto& [id, runs] : runs_) CHECK(runs == 1);
}

}  // namespace dsec::test
