#include "backends/fake/backend.hpp"

#include <utility>

#include "backends/fake/sandbox.hpp"

namespace dsec::fake {
namespace {

using base::errc;

/// A backend's hold on one sandbox of its host.
class handle final : public backends::instance {
 public:
  handle(std::shared_ptr<host> over, std::shared_ptr<sandbox> of, std::shared_ptr<backend::tie> t)
      : host_(std::move(over)), of_(std::move(of)), tie_(std::move(t)) {}
  ~handle() override {
    if (tie_->dead) return;
    of_->detach(tie_);
    if (tie_->leaving) return;
    static_cast<void>(of_->stop());
    host_->remove(of_->id());
  }

  base::result<void> exec(backends::exec_spec spec) override {
    DSEC_CHECK(check());
    return of_->exec(std::move(spec));
  }
  base::result<void> kill(const std::string& command_id) override {
    DSEC_CHECK(check());
    return of_->kill(command_id);
  }
  base::result<backends::output_piece> read_output(const std::string& command_id,
                                                   backends::stream which, std::uint64_t offset,
                                                   std::uint64_t length,
                                                   std::optional<std::uint64_t> total) override {
    return of_->read_output(command_id, which, offset, length, total);
  }
  base::result<void> watch_output(const std::string& command_id, backends::stream which,
                                  std::function<void()> grown) override {
    return of_->watch_output(command_id, which, std::move(grown));
  }
  void forget(const std::string& command_id) override {
    if (check()) of_->forget(command_id);
  }
  void withdraw(const std::string& command_id) override {
    if (check()) of_->withdraw(command_id);
  }
  base::result<backends::usage> usage() override { return backends::usage{}; }
  base::result<void> stop() override {
    DSEC_CHECK(check());
    return of_->stop();
  }

 private:
  [[nodiscard]] base::result<void> check() const {
    if (!tie_->dead) return {};
    return base::fail(errc::unavailable, "its dsecd is dead");
  }

  std::shared_ptr<host> host_;
  std::shared_ptr<sandbox> of_;
  std::shared_ptr<backend::tie> tie_;
};

/// Events that a dead dsecd does not hear.
backends::event_sink guarded(const backends::event_sink& to,
                             const std::shared_ptr<backend::tie>& t) {
  return {.started =
              [to, t](backends::command_started e) {
                if (!t->dead) to.started(std::move(e));
              },
          .failed =
              [to, t](backends::command_failed e) {
                if (!t->dead) to.failed(std::move(e));
              },
          .exited =
              [to, t](backends::command_exited e) {
                if (!t->dead) to.exited(std::move(e));
              },
          .gone =
              [to, t](base::cause why, std::string detail) {
                if (!t->dead) to.gone(why, std::move(detail));
              }};
}

}  // namespace

backend::backend(script s, std::string name)
    : backend(std::make_shared<fake::host>(std::move(s)), std::move(name)) {}

backend::backend(std::shared_ptr<fake::host> over, std::string name)
    : host_(std::move(over)), name_(std::move(name)) {}

backend::~backend() = default;

std::vector<backends::probe_item> backend::probe() {
  return {{"memory", true, "everything is in memory"}};
}

base::result<std::unique_ptr<backends::instance>> backend::start(const backends::start_spec& spec,
                                                                 backends::event_sink sink) {
  if (tie_->dead) return base::fail(errc::unavailable, "its dsecd is dead");
  if (leftovers_ == rest::stays)
    return base::fail(errc::unavailable, "what an earlier run left has not been ended yet");
  DSEC_CHECK(host_->step("start", spec.sandbox_id));
  auto made = host_->make(spec);
  made->attach(tie_, guarded(sink, tie_));
  host_->note("start " + spec.sandbox_id);
  return std::make_unique<handle>(host_, std::move(made), tie_);
}

base::result<backends::recovered> backend::recover(const backends::start_spec& spec,
                                                   backends::event_sink sink) {
  DSEC_CHECK(host_->step("recover", spec.sandbox_id));
  const auto found = host_->find(spec.sandbox_id);
  if (!found) return base::fail(errc::not_found, "nothing is left of '" + spec.sandbox_id + "'");
  auto out = found->describe();
  if (auto log = host_->step("log", spec.sandbox_id); !log) {
    out.commands.clear();
    out.used_up.clear();
    if (out.alive) out.sealed = log.error();
  }
  out.instance = std::make_unique<handle>(host_, found, tie_);
  found->attach(tie_, guarded(sink, tie_));
  found->tell_news();
  return out;
}

base::result<void> backend::end_unrecovered() {
  if (leftovers_ == rest::ended) return {};
  leftovers_ = rest::stays;
  DSEC_CHECK(host_->step("end_unrecovered", {}));
  host_->end_all_but(tie_);
  leftovers_ = rest::ended;
  return {};
}

void backend::leave() {
  tie_->leaving = true;
}

void backend::refill() {
  ++refills_;
}

void backend::die() {
  tie_->dead = true;
  host_->detach(tie_);
}

}  // namespace dsec::fake
