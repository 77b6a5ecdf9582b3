// See crowd.hpp. Workers are processes, so that none waits for another's locks: they meet in one
// shared page of counters and one array of samples each. The parent stays in the host's mount
// namespace and removes whatever groups a worker that failed has left.
#include "floor/crowd.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>

#include "floor/kernel.hpp"
#include "floor/sandbox.hpp"

namespace floor_bench {
namespace {

constexpr int warm_up = 5;  // lives of each worker that are not counted
constexpr std::size_t max_samples = 200'000;

struct sample {
  double at;  // when it was done
  double took;
};

struct board {
  std::atomic<int> prepared, done;
  std::atomic<bool> go, leave;
  double began;  // set before `go`
};

struct tally {
  std::size_t count;
  sample samples[max_samples];
};

template <class T>
T* shared() {
  void* at = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) give_up("mmap", -errno);
  return new (at) T;
}

struct life {
  groups g;
  slot s;
  sandbox made;
};

life begin_life(const std::string& name, const char* program) {
  life l;
  l.g = make_groups(name, aether_id);
  l.s = make_slot(name);
  l.made = create(l.s, l.g, program);
  drop_slot(l.s);
  close_groups(l.g);
  return l;
}

void end_life(life& l) {
  destroy(l.made);
  remove_groups(l.g);
  remove_home(l.s);
}

class crowd {
 public:
  using work = std::function<void(crowd&, int worker)>;

  crowd(const crowd_plan& plan, const char* what)
      : plan_(plan), name_(std::string("floor-") + what + "-" + std::to_string(::getpid())) {}

  /// Starts the workers, each prepared and waiting.
  void start(const work& body) {
    open_hierarchies();
    for (int i = 0; i < plan_.workers; ++i) tallies_.push_back(shared<tally>());
    for (int i = 0; i < plan_.workers; ++i) {
      const int pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        prepare(plan_.disk, plan_.layers);
        body(*this, i);
        ::_exit(0);
      }
      pids_.push_back(pid);
    }
  }

  /// The parent: until all workers have counted up to the same point.
  void await(const std::atomic<int>& counter) {
    while (counter.load() < plan_.workers) {
      if (::waitpid(-1, nullptr, WNOHANG) > 0) fail();
      ::usleep(500);
    }
  }
  void go() {
    board_->began = now_ms();
    board_->go.store(true);
  }
  int finish() {
    bool good = true;
    for (const int pid : pids_) {
      int status = 0;
      ::waitpid(pid, &status, 0);
      good = good && status == 0;
    }
    remove_groups_like(name_ + "-");
    return good ? 0 : 1;
  }

  // The workers:
  void arrive() {
    board_->prepared.fetch_add(1);
    while (!board_->go.load()) ::usleep(200);
  }
  void stay() {
    board_->done.fetch_add(1);
    while (!board_->leave.load()) ::usleep(1000);
  }
  void count(int worker, double began) {
    auto& t = *tallies_[static_cast<std::size_t>(worker)];
    const double at = now_ms();
    if (t.count < max_samples) t.samples[t.count++] = {at - board_->began, at - began};
  }
  life live(int worker, int number) const {
    return begin_life(name_ + "-" + std::to_string(worker) + "-" + std::to_string(number),
                      plan_.program);
  }

  [[nodiscard]] const crowd_plan& plan() const { return plan_; }
  [[nodiscard]] board& at() const { return *board_; }
  [[nodiscard]] const std::vector<tally*>& tallies() const { return tallies_; }

 private:
  /// A worker has failed and said why; the others end with it.
  [[noreturn]] void fail() {
    for (const int pid : pids_) ::kill(pid, SIGKILL);
    while (::wait(nullptr) > 0) {
    }
    remove_groups_like(name_ + "-");
    ::_exit(1);
  }

  const crowd_plan& plan_;
  std::string name_;
  board* board_ = shared<board>();
  std::vector<tally*> tallies_;
  std::vector<int> pids_;
};

void churn_worker(crowd& c, int worker) {
  int number = 0;
  const auto once = [&] {
    life l = c.live(worker, number++);
    end_life(l);
  };
  while (number < warm_up) once();
  c.arrive();
  const double until = c.at().began + c.plan().amount * 1e3;
  while (now_ms() < until) {
    const double began = now_ms();
    once();
    c.count(worker, began);
  }
}

void density_worker(crowd& c, int worker) {
  const auto [amount, workers] = std::pair(c.plan().amount, c.plan().workers);
  const int mine = amount / workers + (worker < amount % workers ? 1 : 0);
  std::vector<life> lives;
  for (int i = -warm_up; i < 0; ++i) {
    life l = c.live(worker, i);
    end_life(l);
  }
  c.arrive();
  for (int i = 0; i < mine; ++i) {
    const double began = now_ms();
    lives.push_back(c.live(worker, i));
    c.count(worker, began);
  }
  c.stay();
  for (life& l : lives) end_life(l);
}

/// Whoever reads standard output looks at the machine meanwhile.
void say_and_wait(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
  char line[16];
  (void)!::read(0, line, sizeof line);
}

}  // namespace

int churn(const crowd_plan& plan) {
  prepare_process(0);
  crowd c(plan, "churn");
  c.start(churn_worker);
  c.await(c.at().prepared);
  c.go();
  const int status = c.finish();
  const double elapsed = now_ms() - c.at().began;
  for (const auto* t : c.tallies()) {
    for (std::size_t i = 0; i < t->count; ++i) std::printf("cycle %.4f\n", t->samples[i].took);
  }
  std::printf("elapsed %.4f\n", elapsed);
  return status;
}

int density(const crowd_plan& plan) {
  prepare_process(plan.amount);
  crowd c(plan, "density");
  c.start(density_worker);
  c.await(c.at().prepared);
  say_and_wait("ready");
  c.go();
  c.await(c.at().done);
  for (const auto* t : c.tallies()) {
    for (std::size_t i = 0; i < t->count; ++i)
      std::printf("made %.4f %.4f\n", t->samples[i].at, t->samples[i].took);
  }
  say_and_wait("live");
  const double began = now_ms();
  c.at().leave.store(true);
  const int status = c.finish();
  std::printf("stopped %.4f\n", now_ms() - began);
  return status;
}

}  // namespace floor_bench
