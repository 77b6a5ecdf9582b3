// Entry point of the launcher: takes its descriptors, leaves the host's mount namespace, serves.
// How it is started and what it answers: guest/launch.hpp. Anything that fails here ends it with
// status 1 and a line in the log.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "guest/channel.hpp"
#include "guest/launcher/credentials.hpp"
#include "guest/launcher/init.hpp"
#include "guest/launcher/instrument.hpp"
#include "guest/launcher/launcher.hpp"
#include "guest/launcher/log.hpp"
#include "guest/launcher/namespaces.hpp"
#include "guest/launcher/overlay.hpp"
#include "guest/launcher/skeleton.hpp"

namespace dsec::launcher {
namespace {

struct inherited {
  fd listening, state, image, layers_ns;
};

/// Sorts the inherited descriptors into the launcher's table (fd.hpp).
status take_descriptors(int argc, char** argv, inherited& in) {
  if (argc < 4 || argc > 5) return {"arguments", EINVAL};
  fd* const places[] = {&in.listening, &in.state, &in.image, &in.layers_ns};
  for (int i = 1; i < argc; ++i) {
    char* end = nullptr;
    const long number = strtol(argv[i], &end, 10);
    if (end == argv[i] || *end != '\0' || number < 3) return {"arguments", EINVAL};
    *places[i - 1] = fd(number);
  }
  for (fd* each : places) {
    if (each->valid()) LAUNCH_TRY("descriptor", each->keep());
  }
  for (int n = 0; n <= 2; ++n) {
    if (sys::call(SYS_fcntl, n, F_GETFD) < 0) {
      LAUNCH_TRY("/dev/null", sys::call(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR));
    }
  }
  sys::call(SYS_close_range, 3, first_kept - 1, 0);
  return reserved_fds::reserve();
}

/// Last to be killed when memory is short. A host may forbid it: then sandboxes run without.
bool protect_from_oom() {
  const fd file(sys::call(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  return sys::call(SYS_write, file.get(), "-950", 4) == 4;
}

/// Two descriptors per sandbox, four per slot in the pool; commands inside are given theirs out of
/// this too.
void raise_open_files() {
  constexpr rlim_t wanted = 1 << 20;
  rlimit limit{};
  sys::call(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit);
  const rlimit more{wanted, wanted > limit.rlim_max ? wanted : limit.rlim_max};
  if (sys::call(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, nullptr) == 0) return;
  limit.rlim_cur = limit.rlim_max;
  sys::call(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr);
}

/// Here and not by aether, which could not raise a hard limit of 0. Where that is not permitted to
/// us either, commands keep the 0.
void allow_core_limit() {
  constexpr rlimit limit{guest::core_limit, guest::core_limit};
  sys::call(SYS_prlimit64, 0, RLIMIT_CORE, &limit, nullptr);
}

status prepare(inherited& in, holdings& held) {
  LAUNCH_TRY("image", sys::call(SYS_dup3, in.image.get(), image_number, O_CLOEXEC));
  in.image.reset();
  held.oom_scores = protect_from_oom();
  raise_open_files();
  allow_core_limit();
  if (status s = drop_inheritance(); !s.ok()) return s;
  if (status s = seal_keyring(); !s.ok()) return s;
  if (status s = in.layers_ns.valid() ? enter_layers_namespace(in.layers_ns.get())
                                      : make_layers_namespace(in.state.get());
      !s.ok())
    return s;
  in.state.reset();
  held.layers_ns = fd(sys::call(SYS_openat, AT_FDCWD, "/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  LAUNCH_TRY("layers namespace", held.layers_ns.get());
  LAUNCH_TRY("layers namespace", held.layers_ns.keep());
  if (status s = make_empty_sys(); !s.ok()) return s;
  if (status s = make_template(held.template_ns); !s.ok()) return s;
  LAUNCH_TRY("template namespace", held.template_ns.keep());
  held.detached_overlays = overlay_takes_detached();
  return make_skeleton();
}

void on_sigpipe(int) {}

/// Whatever dsecd had blocked or ignored must not reach the commands. SIGPIPE is caught and not
/// ignored, because CLONE_CLEAR_SIGHAND leaves ignored signals as they are. Raw: glibc keeps two
/// signals to itself.
void reset_signals() {
  constexpr int last_signal = 64;
  const struct {
    void* handler;
    unsigned long flags;
    void* restorer;
    std::uint64_t mask;
  } by_default{};
  for (int n = 1; n <= last_signal; ++n) {
    sys::call(SYS_rt_sigaction, n, &by_default, nullptr, sizeof by_default.mask);
  }
  sys::call(SYS_rt_sigprocmask, SIG_SETMASK, &by_default.mask, nullptr, sizeof by_default.mask);
  signal(SIGPIPE, on_sigpipe);
}

int run(int argc, char** argv) {
  instrument_start();
  reset_signals();
  umask(022);
  inherited in;
  holdings held;
  status s = take_descriptors(argc, argv, in);
  if (s.ok()) s = prepare(in, held);
  if (s.ok()) {
    launcher serving(std::move(in.listening), std::move(held));
    s = serving.load();
    if (s.ok()) {
      log_info("launcher_started");
      s = serving.run();
    }
  }
  if (!s.ok()) log_warn("launcher_failed", "", s);
  return s.ok() ? 0 : 1;
}

}  // namespace
}  // namespace dsec::launcher

int main(int argc, char** argv) {
  return dsec::launcher::run(argc, argv);
}
