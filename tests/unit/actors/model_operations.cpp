#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model.hpp"

namespace dsec::test {

using namespace std::chrono_literals;
using seconds = std::chrono::seconds;

void model::create_one() {
  auto* who = anybody();
  if (who == nullptr || sandboxes_.size() > 60) return stop_one();
  const auto key = one_in(2) ? "k" + std::to_string(draw(12)) : std::string();
  const int variant = static_cast<int>(draw(4)) == 0 ? 1 : 0;
  const bool detached = one_in(4);
  const std::uint32_t ttl = one_in(3) ? 30 : 0;
  const auto body = variant * 4 + (detached ? 2 : 0) + (ttl != 0 ? 1 : 0);
  const auto a = who->c->call(create([&](proto::CreateSandbox::Builder c) {
                                c.setMemoryMb(variant == 0 ? 64 : 128);
                                c.setDetached(detached);
                                c.setAbsoluteTtlSeconds(ttl);
                              }),
                              patient, key);
  const auto used = keys_.find({who->principal, key});
  // Of one that died while no node was there it may not be known that it ever ran.
  const auto freed = [&] {
    const auto& s = sandboxes_.at(used->second.first);
    return s.cause == "lost" && a.kind == "sandbox";
  };
  if (!key.empty() && used != keys_.end() && !freed()) {
    if (used->second.second != body) return same(a.code, "conflict");
    auto& s = sandboxes_.at(used->second.first);
    if (!s.alive) {
      CHECK(a.object == s.id);
      return same(a.code, "sandbox_failed");
    }
    CHECK(a.sandbox_id == s.id);
    if (!s.lease.empty() && !who->lease.empty()) s.lease = who->lease;
    CHECK(a.detached == s.lease.empty());
    return node_.write_records();
  }
  REQUIRE(a.kind == "sandbox");
  CHECK(a.phase == "running");
  model_sandbox s;
  s.number = ++last_sandbox_;
  s.id = a.sandbox_id;
  s.owner = who->principal;
  s.key = key;
  if (!detached) s.lease = who->lease;
  if (ttl != 0) s.ends = now() + seconds(ttl);
  sandboxes_.emplace(s.number, s);
  if (!key.empty()) keys_[{s.owner, key}] = {s.number, body};
}

void model::check_command(const answer& a, const model_command& c) {
  switch (c.now) {
    case model_command::state::ended:
      CHECK(a.state == "ended");
      CHECK(a.exit_code == c.exit_code);
      break;
    case model_command::state::refused:
      CHECK(a.code == "exec_failed");
      break;
    case model_command::state::lost:
      CHECK(a.code == "sandbox_failed");
      break;
    default:
      FAIL("it should not have been answered");
  }
}

/// A request that is answered when the command has ended: now, or it waits.
void model::expect_known(speaker& who, model_sandbox& s, const std::string& id,
                         const client::fill& f) {
  const auto request = who.c->ask(f, patient);
  const auto a = who.c->got(request);
  const auto& c = s.commands.at(id);
  const bool waits = c.now == model_command::state::running || c.now == model_command::state::limbo;
  REQUIRE(a.has_value() == !waits);
  if (a) return check_command(*a, c);
  who.waiting[request] = {s.number, id};
}

void model::exec_new(speaker& who, model_sandbox& s, const std::string& id) {
  static const std::vector<std::string> ways{"exit", "exit", "exit", "hold",
                                             "hold", "bad",  "busy", "lost"};
  const auto how = ways[draw(ways.size())];
  const auto code = static_cast<int>(10 + draw(190));
  const auto request = who.c->ask(exec(s.id, id,
                                       [&](auto e) {
                                         e.setWait(how != "hold");
                                         auto argv = e.initArgv(2);
                                         argv.set(0, how.c_str());
                                         argv.set(1, std::to_string(code).c_str());
                                       }),
                                  patient);
  const auto a = who.c->got(request);
  if (!s.alive) return same(a.value().code, "sandbox_failed");
  if (how == "busy") return same(a.value().code, "capacity");
  using state = model_command::state;
  const auto ends = how == "exit" ? state::ended : how == "bad" ? state::refused : state::running;
  auto& c = s.commands[id] = {how == "lost" ? state::limbo : ends, code};
  if (c.now == state::limbo) {
    CHECK_FALSE(a);
    who.waiting[request] = {s.number, id};
  } else if (c.now == state::running) {
    CHECK(a.value().state == "running");
  } else {
    check_command(a.value(), c);
  }
}

void model::exec_one() {
  auto* who = anybody();
  auto* s = who == nullptr ? nullptr : one_of(who->principal);
  if (s == nullptr) return;
  const auto known = command_of(*s);
  if (!known || !one_in(4)) return exec_new(*who, *s, "c" + std::to_string(++last_id_));
  expect_known(*who, *s, *known, exec(s->id, *known));
}

void model::kill_one() {
  auto* who = anybody();
  auto* s = who == nullptr ? nullptr : one_of(who->principal);
  const auto id = s == nullptr ? std::nullopt : command_of(*s);
  if (!id || s->commands.at(*id).now == model_command::state::limbo) return;
  auto& c = s->commands.at(*id);
  const bool ran = c.now == model_command::state::running;
  if (ran) c = {model_command::state::ended, 137};
  expect_known(*who, *s, *id, kill_command(s->id, *id));
  if (ran) settle(s->number, *id);
}

void model::finish_one() {
  auto* s = one_of(one_in(3) ? "bob" : "alice");
  const auto id = s == nullptr || !s->alive ? std::nullopt : command_of(*s);
  if (!id || s->commands.at(*id).now != model_command::state::running) return;
  const auto code = static_cast<int>(10 + draw(190));
  node_.backend->finish(s->id, *id, {.refused = {}, .exit_code = code, .out = "x", .err = {}});
  node_.run();
  s->commands.at(*id) = {model_command::state::ended, code};
  settle(s->number, *id);
}

void model::look_at_command() {
  auto* who = anybody();
  auto* s = who == nullptr ? nullptr : one_of(who->principal);
  const auto id = s == nullptr ? std::nullopt : command_of(*s);
  if (!id) return;
  const auto a = who->c->call(get_command(s->id, *id), patient);
  const auto& c = s->commands.at(*id);
  switch (c.now) {
    case model_command::state::running:
    case model_command::state::limbo:
      CHECK(a.state == "running");
      break;
    case model_command::state::lost:
      CHECK(a.state == "lost");
      break;
    default:
      check_command(a, c);
  }
}

void model::look_at_sandbox() {
  auto* who = anybody();
  auto* s = who == nullptr ? nullptr : one_of(one_in(8) ? "bob" : who->principal);
  if (s == nullptr) return;
  const auto a = who->c->call(get(s->id), patient);
  if (s->owner != who->principal) return same(a.code, "not_found");
  CHECK(a.phase == s->phase);
  CHECK(a.cause == s->cause);
  CHECK(a.detached == s->lease.empty());
}

void model::list_all() {
  auto* who = anybody();
  if (who == nullptr) return;
  auto ids = who->c->call(list(), patient).ids;
  const std::set<std::string> got(ids.begin(), ids.end());
  std::set<std::string> want;
  for (const auto& [number, s] : sandboxes_) {
    if (s.owner == who->principal) want.insert(s.id);
  }
  CHECK(got == want);
  if (auto* s = one_of(who->principal)) {
    ids = who->c->call(list_commands(s->id), patient).ids;
    const std::set<std::string> commands(ids.begin(), ids.end());
    CHECK(commands.size() == s->commands.size());
    for (const auto& [id, c] : s->commands) CHECK(commands.contains(id));
  }
}

void model::write_one() {
  auto* who = anybody();
  auto* s = who == nullptr ? nullptr : one_of(who->principal);
  if (s == nullptr) return;
  const auto operation = one_in(2) ? "w" + std::to_string(draw(8)) : std::string();
  const std::string data(draw(100), 'x');
  const auto a = who->c->call(write_file(s->id, "/f", data, operation), patient);
  const auto known = s->writes.find(operation);
  if (!operation.empty() && known != s->writes.end())
    return same(a.size, known->second);  // also when it has ended
  if (!s->alive) return same(a.code, "sandbox_failed");
  CHECK(a.kind == "file_written");
  CHECK(a.size == data.size());
  s->file = data;
  if (!operation.empty()) s->writes[operation] = data.size();
}

void model::read_one() {
  auto* who = anybody();
  auto* s = who == nullptr ? nullptr : one_of(who->principal);
  if (s == nullptr || s->file.empty()) return;
  const auto a = who->c->call(read_file(s->id, "/f"), patient);
  CHECK((s->alive ? a.out == s->file : a.code == "sandbox_failed"));
}

void model::stop_one() {
  auto* who = anybody();
  auto* s = who == nullptr ? nullptr : one_of(who->principal);
  if (s == nullptr) return;
  const auto key = keys_.find({s->owner, s->key});
  const bool has_key = key != keys_.end() && key->second.first == s->number;
  const bool frees_key = has_key && one_in(2);
  // Without the id it withdraws a key that nobody has, and one that is lost may have lost it.
  const bool by_key = frees_key && s->alive && one_in(2);
  const auto a =
      who->c->call(stop(by_key ? "" : s->id), patient, frees_key ? s->key : std::string());
  if (frees_key) keys_.erase(key);
  end(*s, "stopped", "killed");
  CHECK(a.phase == s->phase);
  CHECK(a.cause == s->cause);
}

void model::fail_one() {
  auto* s = one_of(one_in(3) ? "bob" : "alice");
  if (s == nullptr || !s->alive) return;
  node_.backend->fail(s->id, base::cause::oom, "out of memory");
  node_.run();
  end(*s, "failed", "oom");
}

void model::detach_one() {
  auto* who = anybody();
  auto* s = who == nullptr ? nullptr : one_of(who->principal);
  if (s == nullptr) return;
  const bool detach = one_in(2);
  const auto a = who->c->call(set_detached(s->id, detach), patient);
  if (!detach && who->lease.empty()) return same(a.code, "invalid_argument");
  if (!s->alive) return same(a.code, "sandbox_failed");
  s->lease = detach ? "" : who->lease;
  CHECK(a.detached == detach);
}

}  // namespace dsec::test
