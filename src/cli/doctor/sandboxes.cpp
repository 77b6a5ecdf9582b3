// What the container backend cannot do without, as dsecd itself tries it at every start.
#include <fcntl.h>
#include <unistd.h>

#include "backends/container/probe.hpp"
#include "backends/sys/unique_fd.hpp"
#include "cli/doctor/capability.hpp"

namespace dsec::cli::doctor {

namespace {

/// A launcher logs to the stderr that it was started with. What goes wrong comes back as errors.
class quiet_stderr {
 public:
  quiet_stderr() : kept_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    const sys::unique_fd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (kept_ && nowhere) ::dup2(nowhere.get(), STDERR_FILENO);
  }
  ~quiet_stderr() {
    if (kept_) ::dup2(kept_.get(), STDERR_FILENO);
  }
  quiet_stderr(const quiet_stderr&) = delete;
  quiet_stderr& operator=(const quiet_stderr&) = delete;

 private:
  const sys::unique_fd kept_;
};

}  // namespace

findings look_at_sandboxes(const place& p) {
  const quiet_stderr quiet;
  findings all;
  for (const auto& item : container::probe_host(p.scratch, p.node)) {
    all.push_back({{"sandboxes", item.what, true, item.remedy, "nothing: no sandbox starts"},
                   item.have,
                   item.detail});
  }
  return all;
}

}  // namespace dsec::cli::doctor
