// PATH search and execve (program.hpp).
#include "guest/aether/program.hpp"

#include "guest/aether/syscall.hpp"

namespace dsec::guest::aether {
namespace {

constexpr const char* default_path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr size_t path_max = 4096;

const char* variable(char** envp, const char* name_and_equals) {
  for (; *envp != nullptr; ++envp) {
    if (starts_with(*envp, name_and_equals)) return *envp + length_of(name_and_equals);
  }
  return nullptr;
}

/// HOME is the only variable that depends on the sandbox's /etc/passwd, so it is added here when
/// the request does not set it. cut_strings left room for one more pointer.
void complete_environment(char** envp, const identity& who, fixed_text<max_home + 8>& home) {
  if (variable(envp, "HOME=") != nullptr) return;
  home.add("HOME=").add(who.home.size() != 0 ? who.home.c_str() : "/");
  while (*envp != nullptr) ++envp;
  *envp = const_cast<char*>(home.c_str());
}

long execute(const char* path, char** argv, char** envp) {
  return sys::call(__NR_execve, path, argv, envp);
}

/// Errors after which the next PATH entry is tried: execvp(3).
bool try_next(long error) {
  return error == -ENOENT || error == -ENOTDIR || error == -EACCES || error == -ESTALE ||
         error == -ENODEV || error == -ETIMEDOUT || error == -ENAMETOOLONG;
}

/// Executes `name` from the first PATH entry that has it; returns the errno to report when none
/// has. A file that was found but may not be executed is reported in preference to "not found".
long execute_from_path(const char* name, char** argv, char** envp) {
  if (*name == '\0') return -ENOENT;
  const char* path = variable(envp, "PATH=");
  if (path == nullptr) path = default_path;
  long worst = -ENOENT;
  for (const char* at = path;; ++at) {
    const char* end = at;
    while (*end != '\0' && *end != ':') ++end;
    fixed_text<path_max> full;
    if (end != at) full.add(at, static_cast<size_t>(end - at)).add("/");  // empty entry: the cwd
    full.add(name);
    if (!full.bad()) {
      const long r = execute(full.c_str(), argv, envp);
      if (!try_next(r)) return r;
      if (r == -EACCES) worst = r;
    }
    if (*end == '\0') return worst;
    at = end;
  }
}

}  // namespace

void run_program(child_plan& plan, const identity& who) {
  fixed_text<max_home + 8> home;
  complete_environment(plan.strings.envp, who, home);
  char** argv = plan.strings.argv;
  const long r = contains(argv[0], '/') ? execute(argv[0], argv, plan.strings.envp)
                                        : execute_from_path(argv[0], argv, plan.strings.envp);
  child_fails(plan, failure::exec, r);
}

void run_shell(child_plan& plan, const identity& who) {
  fixed_text<max_home + 8> home;
  complete_environment(plan.strings.envp, who, home);
  char bash[] = "bash", sh[] = "sh", option[] = "-c";
  char* argv[] = {bash, option, plan.strings.argv[0], nullptr};
  long r = execute("/bin/bash", argv, plan.strings.envp);
  if (try_next(r) || r == -ENOEXEC) {
    argv[0] = sh;
    r = execute("/bin/sh", argv, plan.strings.envp);
  }
  const bool no_shell = r == -ENOENT || r == -ENOTDIR || r == -EACCES;
  child_fails(plan, no_shell ? failure::no_shell : failure::exec, r);
}

}  // namespace dsec::guest::aether
