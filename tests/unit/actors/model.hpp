// Random operations on a node, in virtual time, held against a small model of what clients are
// promised: creates with and without keys, commands, writes, kills, stops, deaths, time limits,
// leases, crashes of actors, and kill -9 of the whole node at any moment between two operations.
//
// model.cpp             who is there, time, the node's death
// model_operations.cpp  what clients do
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "node_fixture.hpp"

namespace dsec::test {

template <class A, class B>
void same(const A& got, const B& wanted) {
  CHECK(got == wanted);
}

inline constexpr std::uint32_t patient = 4'000'000'000;  // ms: no request of these is ever late

struct model_command {
  enum class state { running, limbo, ended, refused, lost };
  state now = state::running;
  int exit_code = 0;
};

struct model_sandbox {
  unsigned number = 0;  // in order of creation: seeds choose by it, ids are chance
  std::string id, owner, key, lease;
  bool alive = true;
  std::string phase = "running", cause = "none";
  std::optional<std::chrono::seconds> ends;       // absolute time limit
  std::optional<std::chrono::seconds> forgotten;  // when its record goes
  std::map<std::string, model_command> commands;
  std::map<std::string, std::uint64_t> writes;  // size by operation
  std::string file;
  int crashes = 0;
};

/// One who speaks to the node, on one connection.
struct speaker {
  std::unique_ptr<client> c;
  std::string principal, lease;
  std::uint32_t lease_seconds = 0;
  bool connected = true;
  std::map<std::uint64_t, std::pair<unsigned, std::string>> waiting;  // sandbox and command
};

class model {
 public:
  explicit model(std::uint64_t seed);
  void run(int operations);

 private:
  using operation = void (model::*)();

  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  bool one_in(std::uint64_t n) { return draw(n) == 0; }
  speaker* anybody();
  model_sandbox* one_of(const std::string& principal);
  std::optional<std::string> command_of(model_sandbox& s);
  std::chrono::seconds now() const { return now_; }

  void create_one();
  void exec_one();
  void exec_new(speaker& who, model_sandbox& s, const std::string& id);
  void expect_known(speaker& who, model_sandbox& s, const std::string& id, const client::fill& f);
  void kill_one();
  void finish_one();
  void look_at_command();
  void look_at_sandbox();
  void list_all();
  void write_one();
  void read_one();
  void stop_one();
  void fail_one();
  void detach_one();
  void wait_a_while();
  void crash_one();
  void crash_edge();
  void come_and_go();
  void restart();

  void end(model_sandbox& s, const std::string& phase, const std::string& cause);
  void settle(unsigned sandbox, const std::string& command);
  void check_command(const answer& a, const model_command& c);
  void tick();
  void connect(speaker& s);

  std::mt19937_64 random_;
  std::map<std::string, int> runs_;  // by command id, which are unique here
  node_fixture node_;
  std::vector<speaker> speakers_;
  std::map<unsigned, model_sandbox> sandboxes_;
  std::map<std::pair<std::string, std::string>, std::pair<unsigned, int>> keys_;
  std::map<std::string, std::chrono::seconds> lease_gone_;  // since when nobody holds it
  std::map<std::string, std::uint32_t> lease_seconds_;
  bool node_down_ = false;
  std::chrono::seconds now_{0}, last_edge_crash_{-1000};
  unsigned last_id_ = 0, last_sandbox_ = 0;
};

}  // namespace dsec::test
