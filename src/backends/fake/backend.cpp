#include "backends/fake/backend.hpp"

#include <stdexcept>
#include <utility>

#include "backends/fake/instance.hpp"

namespace dsec::fake {
namespace {

/// start() hands out sole ownership, timers and test controls need to share it.
class handle final : public backends::instance {
 public:
  explicit handle(std::shared_ptr<fake::instance> shared) : shared_(std::move(shared)) {}
  ~handle() override { static_cast<void>(shared_->stop()); }

  base::result<void> exec(backends::exec_spec spec) override {
    return shared_->exec(std::move(spec));
  }
  base::result<void> kill(const std::string& command_id) override {
    return shared_->kill(command_id);
  }
  base::result<backends::output_piece> read_output(const std::string& command_id,
                                                   backends::stream which, std::uint64_t offset,
                                                   std::uint64_t length,
                                                   std::optional<std::uint64_t> total) override {
    return shared_->read_output(command_id, which, offset, length, total);
  }
  void forget(const std::string& command_id) override { shared_->forget(command_id); }
  base::result<backends::usage> usage() override { return shared_->usage(); }
  base::result<void> stop() override { return shared_->stop(); }

 private:
  std::shared_ptr<fake::instance> shared_;
};

}  // namespace

backend::backend(script s, std::string name)
    : script_(std::move(s)), name_(std::move(name)), timer_(std::make_shared<timer>()) {}

backend::~backend() = default;

std::vector<backends::probe_item> backend::probe() {
  return {{"memory", true, "everything is in memory"}};
}

base::result<std::unique_ptr<backends::instance>> backend::start(const backends::start_spec& spec,
                                                                 backends::event_sink sink) {
  if (script_.on_step) DSEC_CHECK(script_.on_step("start", spec.sandbox_id));
  auto made = std::make_shared<instance>(*this, spec.sandbox_id, std::move(sink));
  {
    const std::scoped_lock lock(mutex_);
    instances_[spec.sandbox_id] = made;
    started_.push_back(spec);
  }
  note("start " + spec.sandbox_id);
  return std::make_unique<handle>(std::move(made));
}

void backend::refill() {
  const std::scoped_lock lock(mutex_);
  ++refills_;
}

std::shared_ptr<instance> backend::find(const std::string& sandbox_id) const {
  const std::scoped_lock lock(mutex_);
  const auto it = instances_.find(sandbox_id);
  return it == instances_.end() ? nullptr : it->second.lock();
}

void backend::fail(const std::string& sandbox_id, base::cause why, std::string detail) {
  const auto found = find(sandbox_id);
  if (!found) throw std::logic_error("no fake sandbox " + sandbox_id);
  found->fail(why, std::move(detail));
}

void backend::finish(const std::string& sandbox_id, const std::string& command_id, fate f) {
  const auto found = find(sandbox_id);
  if (!found) throw std::logic_error("no fake sandbox " + sandbox_id);
  found->finish(command_id, f);
}

std::size_t backend::live() const {
  const std::scoped_lock lock(mutex_);
  std::size_t n = 0;
  for (const auto& [id, weak] : instances_) {
    const auto made = weak.lock();
    n += made && !made->stopped() ? 1 : 0;
  }
  return n;
}

std::vector<std::string> backend::steps() const {
  const std::scoped_lock lock(mutex_);
  return steps_;
}

std::size_t backend::refills() const {
  const std::scoped_lock lock(mutex_);
  return refills_;
}

std::vector<backends::start_spec> backend::started() const {
  const std::scoped_lock lock(mutex_);
  return started_;
}

void backend::note(std::string step) {
  const std::scoped_lock lock(mutex_);
  steps_.push_back(std::move(step));
}

}  // namespace dsec::fake
