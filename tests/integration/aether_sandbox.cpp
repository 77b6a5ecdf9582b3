// The harness of support/aether_sandbox.hpp.
#include "support/aether_sandbox.hpp"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "base/embedded.hpp"
#include "guest/spool.hpp"
#include "support/skip.hpp"

namespace dsec::tests {
namespace {

namespace fs = std::filesystem;
using clock = std::chrono::steady_clock;

[[noreturn]] void broken(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), "aether harness: " + what);
}

void must(bool good, const char* what) {
  if (!good) broken(what);
}

void write_file(const fs::path& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  must(fd >= 0, path.c_str());
  const bool good = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  must(good, path.c_str());
}

/// Where a file system of `type` is mounted; for v1 hierarchies with `option` among the super
/// options.
fs::path mounted(const std::string& type, const std::string& option = {}) {
  std::ifstream in("/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream front(line.substr(0, dash)), back(line.substr(dash + 3));
    std::string skip, root, point, fstype, source, super;
    front >> skip >> skip >> skip >> root >> point;
    back >> fstype >> source >> super;
    if (fstype != type || root != "/") continue;
    if (option.empty() || ("," + super + ",").find("," + option + ",") != std::string::npos)
      return point;
  }
  return {};
}

bool has_word(const fs::path& file, const std::string& word) {
  std::ifstream in(file);
  for (std::string w; in >> w;) {
    if (w == word) return true;
  }
  return false;
}

int memory_file(const char* name, const void* bytes, std::size_t n) {
  const int fd = ::memfd_create(name, MFD_CLOEXEC);
  must(fd >= 0 && ::write(fd, bytes, n) == static_cast<ssize_t>(n), name);
  return fd;
}

/// Executable and not readable, without a writer left, as dsecd hands it to the launcher.
int aether_image() {
  const auto image = base::embedded_aether();
  const int writer = memory_file("aether", image.data(), image.size());
  must(::fchmod(writer, 0111) == 0, "fchmod");
  const int fd = ::open(("/proc/self/fd/" + std::to_string(writer)).c_str(), O_RDONLY | O_CLOEXEC);
  must(fd >= 0, "memfd");
  ::close(writer);
  return fd;
}

bool wait_until(clock::time_point until, auto&& condition) {
  while (!condition()) {
    if (clock::now() >= until) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

}  // namespace

int outcome::code() const {
  return exited && WIFEXITED(exited->status) ? WEXITSTATUS(exited->status) : -1;
}
int outcome::signal() const {
  return exited && WIFSIGNALED(exited->status) ? WTERMSIG(exited->status) : 0;
}

std::string aether_sandbox::missing() {
  if (::geteuid() != 0) return "not root";
  if (base::embedded_aether().empty()) return "built without the guest programs";
  if (mounted("cgroup2").empty()) return "no cgroup2 mount";
  return {};
}

bool aether_sandbox::memory_controller() {
  return !mounted("cgroup", "memory").empty() ||
         has_word(mounted("cgroup2") / "cgroup.controllers", "memory");
}

bool aether_sandbox::memory_by_command() {
  return has_word(mounted("cgroup2") / "cgroup.controllers", "memory");
}

aether_sandbox::aether_sandbox(sandbox_options options) : options_(options) {
  static int instances = 0;
  const auto number = static_cast<std::uint32_t>(::getpid() % 30000 * 16 + instances++ % 16);
  name_ = "dsec-aether-test-" + std::to_string(::getpid()) + "-" + std::to_string(instances);
  uid_ = 1'600'000'000U + number;
  base_ = 1'700'000'000U;
  char dir[] = "/tmp/dsec-aether-test-XXXXXX";
  must(::mkdtemp(dir) != nullptr, "mkdtemp");
  root_ = dir;
  make_groups();
  make_user_namespace();
  start_aether();
}

aether_sandbox::~aether_sandbox() {
  hang_up();
  // Nobody holds the other end of its channel: it ends the sandbox and itself.
  const bool ended = aether_ <= 0 || wait_end(milliseconds(5000)).has_value();
  CHECK(ended);
  if (!ended) {
    ::kill(aether_, SIGKILL);
    wait_end(milliseconds(5000));
  }
  for (auto& [id, k] : commands_) {
    for (const int fd : k.spools) {
      if (fd >= 0) ::close(fd);
    }
  }
  if (userns_ >= 0) ::close(userns_);
  remove_groups();
  std::error_code ignored;
  fs::remove(root_, ignored);
}

void aether_sandbox::make_groups() {
  const fs::path unified = mounted("cgroup2");
  slot_ = unified / name_;
  const bool unified_memory = has_word(unified / "cgroup.controllers", "memory");
  if (unified_memory) write_file(unified / "cgroup.subtree_control", "+cpu +memory +pids");
  fs::create_directory(slot_);
  if (unified_memory) write_file(slot_ / "cgroup.subtree_control", "+cpu +memory +pids");
  for (const char* sub : {"init", "cmd"}) fs::create_directory(slot_ / sub);
  must(::chown((slot_ / "cmd").c_str(), uid_, uid_) == 0, "chown");
  must(::chown((slot_ / "cgroup.procs").c_str(), 0, uid_) == 0, "chown");
  must(::chmod((slot_ / "cgroup.procs").c_str(), 0664) == 0, "chmod");
  fs::path memory = slot_ / "cmd", pids = memory;
  if (unified_memory) write_file(memory / "cgroup.subtree_control", "+memory");
  if (unified_memory) {
    oom_kind_ = 1;
    oom_file_ = memory / "memory.events";
    if (options_.memory_bytes != 0) {
      write_file(memory / "memory.max", std::to_string(options_.memory_bytes));
      if (fs::exists(memory / "memory.swap.max")) write_file(memory / "memory.swap.max", "0");
    }
  }
  for (const char* controller : {"cpu", "memory", "pids"}) {
    const fs::path at = mounted("cgroup", controller);
    if (at.empty()) continue;
    legacy_.push_back(at / name_);
    fs::create_directory(legacy_.back());
    if (controller == std::string("memory")) memory = legacy_.back();
    if (controller == std::string("pids")) pids = legacy_.back();
  }
  if (!legacy_.empty() && fs::exists(memory / "memory.oom_control")) {
    oom_kind_ = 0;
    oom_file_ = memory / "memory.oom_control";
    if (options_.memory_bytes != 0) {
      write_file(memory / "memory.limit_in_bytes", std::to_string(options_.memory_bytes));
    }
  }
  if (options_.pids != 0) write_file(pids / "pids.max", std::to_string(options_.pids));
}

void aether_sandbox::remove_groups() {
  std::error_code ignored;
  const auto until = clock::now() + std::chrono::seconds(5);
  const auto gone = [&](const fs::path& group) {
    INFO(group);
    CHECK(wait_until(until, [&] { return ::rmdir(group.c_str()) == 0 || errno == ENOENT; }));
  };
  if (fs::exists(slot_ / "cmd", ignored)) {
    for (const auto& e : fs::directory_iterator(slot_ / "cmd", ignored)) {
      if (e.is_directory()) gone(e.path());
    }
  }
  for (const fs::path& group : {slot_ / "cmd", slot_ / "init", slot_}) gone(group);
  for (const fs::path& group : legacy_) gone(group);
}

void aether_sandbox::make_user_namespace() {
  int ready[2], done[2];
  must(::pipe2(ready, O_CLOEXEC) == 0 && ::pipe2(done, O_CLOEXEC) == 0, "pipe");
  const pid_t helper = ::fork();
  must(helper >= 0, "fork");
  char byte = 0;
  if (helper == 0) {  // its euid becomes the owner of the namespace
    ::close(done[1]);
    const bool good = ::setresgid(uid_, uid_, uid_) == 0 && ::setresuid(uid_, uid_, uid_) == 0 &&
                      ::prctl(PR_SET_DUMPABLE, 1) == 0 && ::unshare(CLONE_NEWUSER) == 0;
    if (good && ::write(ready[1], "x", 1) == 1 && ::read(done[0], &byte, 1) >= 0) ::_exit(0);
    ::_exit(1);
  }
  ::close(ready[1]);
  ::close(done[0]);
  const bool good = ::read(ready[0], &byte, 1) == 1;
  if (good) {
    const fs::path proc = fs::path("/proc") / std::to_string(helper);
    const std::string map = "0 " + std::to_string(base_) + " 65536";
    write_file(proc / "uid_map", map);
    write_file(proc / "gid_map", map);
    userns_ = ::open((proc / "ns/user").c_str(), O_RDONLY | O_CLOEXEC);
  }
  ::close(ready[0]);
  ::close(done[1]);
  ::waitpid(helper, nullptr, 0);
  must(userns_ >= 0, "user namespace");
}

void aether_sandbox::start_aether() {
  int pair[2];
  must(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
  channel_ = pair[0];
  const long pid = ::syscall(
      SYS_clone, CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | SIGCHLD,
      nullptr, nullptr, nullptr, nullptr);
  must(pid >= 0, "clone");
  if (pid == 0) {
    try {
      become_aether(pair[1]);
    } catch (const std::exception& e) {
      ::dprintf(2, "%s\n", e.what());
    }
    ::_exit(99);
  }
  aether_ = static_cast<pid_t>(pid);
  ::close(pair[1]);
  const guest::boot_body boot = {.version = guest::channel_version,
                                 .tasks_count = static_cast<std::uint32_t>(legacy_.size()),
                                 .oom_v2 = oom_kind_,
                                 .nofile = 4096,
                                 .oom_score_adj = 200};
  send(guest::msg::boot, &boot, sizeof boot);
  const auto until = clock::now() + std::chrono::seconds(10);
  while (!hello_) {
    if (!pump(milliseconds(100)) || clock::now() > until) {
      const auto status = wait_end(milliseconds(1000));
      throw std::runtime_error("aether did not say hello; status " +
                               std::to_string(status.value_or(-1)));
    }
  }
}

void aether_sandbox::become_aether(int channel_far) {
  write_file(slot_ / "init/cgroup.procs", "0");
  std::vector<int> fds = {channel_far, userns_, ::open(slot_.c_str(), O_RDONLY | O_DIRECTORY),
                          ::open(oom_file_.empty() ? "/dev/null" : oom_file_.c_str(), O_RDONLY)};
  for (const fs::path& group : legacy_) fds.push_back(::open((group / "tasks").c_str(), O_WRONLY));
  for (int& fd : fds) fd = ::fcntl(fd, F_DUPFD, 100);
  const int image = ::fcntl(aether_image(), F_DUPFD_CLOEXEC, 100);

  must(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "private");
  build_root();
  must(::chdir(root_.c_str()) == 0, "chdir");
  must(::syscall(SYS_pivot_root, ".", ".") == 0, "pivot_root");
  must(::umount2(".", MNT_DETACH) == 0 && ::chdir("/") == 0, "umount");

  const gid_t group = uid_;
  ::signal(SIGPIPE, SIG_IGN);  // as a launcher may have it: must not reach commands
  must(::setgroups(1, &group) == 0 && ::setresgid(uid_, uid_, uid_) == 0 &&
           ::setresuid(uid_, uid_, uid_) == 0,
       "ids");
  for (std::size_t i = 0; i < fds.size(); ++i)
    must(::dup2(fds[i], guest::fd_channel + static_cast<int>(i)) >= 0, "dup2");
  const unsigned first = guest::fd_channel + static_cast<unsigned>(fds.size());
  ::close_range(first, static_cast<unsigned>(image) - 1, 0);
  ::close_range(static_cast<unsigned>(image) + 1, ~0U, 0);
  if (options_.files != 0) {
    const rlimit limit = {options_.files, options_.files};
    must(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "rlimit");
  }
  if (options_.no_cores) {
    const rlimit none = {0, 0};
    must(::setrlimit(RLIMIT_CORE, &none) == 0, "rlimit");
  }
  const char* const argv[] = {"aether", nullptr};
  const char* const envp[] = {nullptr};
  ::syscall(SYS_execveat, image, "", argv, envp, AT_EMPTY_PATH);
  broken("execveat");
}

void aether_sandbox::build_root() const {
  const auto dir = [&](const char* name, mode_t mode) {
    const fs::path p = root_ / name;
    ::mkdir(p.c_str(), mode);
    ::chmod(p.c_str(), mode);
    must(::chown(p.c_str(), base_, base_) == 0, name);
  };
  const auto file = [&](const char* name, const std::string& text, mode_t mode) {
    std::ofstream(root_ / name) << text;
    must(::chmod((root_ / name).c_str(), mode) == 0 &&
             ::chown((root_ / name).c_str(), base_, base_) == 0,
         name);
  };
  const fs::path proc = root_ / "proc", tmp = root_ / "tmp";
  if (options_.root == tree::host) {
    must(::mount("/", root_.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0, "bind");
    must(::mount("tmp", tmp.c_str(), "tmpfs", 0, "mode=1777") == 0, "tmp");
    must(::chown(tmp.c_str(), base_, base_) == 0, "tmp");
  } else {
    must(::mount("root", root_.c_str(), "tmpfs", 0, "mode=755,size=16m") == 0, "tmpfs");
    must(::chown(root_.c_str(), base_, base_) == 0, "root");
    for (const char* name : {"bin", "proc", "etc", "dev", "root"}) dir(name, 0755);
    dir("tmp", 01777);
    must(::mknod((root_ / "dev/null").c_str(), S_IFCHR | 0666, ::makedev(1, 3)) == 0, "null");
    ::chmod((root_ / "dev/null").c_str(), 0666);
    fs::copy_file("/bin/busybox", root_ / "bin/busybox");
    must(::chmod((root_ / "bin/busybox").c_str(), 0755) == 0, "busybox");
    if (options_.root == tree::tiny) {
      for (const char* applet :
           {"sh", "cat", "id", "ls", "sleep", "true", "pwd", "env", "mkfifo", "kill"}) {
        fs::create_symlink("busybox", root_ / "bin" / applet);
      }
      file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\njoe:x:1000:1000::/home/joe:/bin/sh\n",
           0644);
      file("etc/group", "root:x:0:\njoe:x:1000:\nteam:x:2000:ann,joe\nother:x:3000:joey\n", 0644);
    }
  }
  must(::mount("proc", proc.c_str(), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0,
       "proc");
}

void aether_sandbox::send(guest::msg type, const void* body, std::size_t n, const std::string& tail,
                          const std::vector<int>& fds) {
  const bool numbered = type != guest::msg::boot && type != guest::msg::ping;
  const guest::header head = {
      .type = static_cast<std::uint16_t>(type),
      .reserved = 0,
      .length = static_cast<std::uint32_t>(sizeof(guest::header) + n + tail.size()),
      .seq = numbered ? ++sent_ : 0,
      .ack = acknowledge_ ? received_ : 0};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(static_cast<const char*>(body), n);
  send_bytes(bytes + tail, fds);
}

void aether_sandbox::send_bytes(const std::string& bytes, const std::vector<int>& fds) {
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
  msghdr m = {};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  if (!fds.empty()) {
    m.msg_control = control;
    m.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    *c = {.cmsg_len = CMSG_LEN(fds.size() * sizeof(int)),
          .cmsg_level = SOL_SOCKET,
          .cmsg_type = SCM_RIGHTS};
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  must(::sendmsg(channel_, &m, MSG_NOSIGNAL) >= 0, "send");
}

void aether_sandbox::send_raw(const std::string& bytes, std::size_t fds) {
  send_bytes(bytes, std::vector<int>(fds, channel_));
}

void aether_sandbox::send_plain(guest::msg type) {
  send(type, nullptr, 0);
}

void aether_sandbox::send_id(guest::msg type, const std::string& id) {
  guest::kill_body body = {};
  id.copy(body.id, sizeof body.id);
  send(type, &body, sizeof body);
}

std::string aether_sandbox::start(command c) {
  if (c.id.empty()) c.id = "c" + std::to_string(++next_id_);
  guest::exec_body body = {};
  c.id.copy(body.id, sizeof body.id);
  body.kind = static_cast<std::uint32_t>(c.kind);
  body.timeout_ms = static_cast<std::uint64_t>(c.timeout.count());
  body.spool_cap = c.cap;
  body.offset = c.offset;
  body.length = c.length;
  body.mode = c.mode;
  body.argc = static_cast<std::uint32_t>(c.argv.size());
  body.envc = static_cast<std::uint32_t>(c.env.size());
  std::string strings;
  for (const auto& s : c.argv) strings += s + '\0';
  for (const auto& s : c.env) strings += s + '\0';
  strings += c.cwd + '\0' + c.user + '\0';
  body.strings_length = static_cast<std::uint32_t>(strings.size());

  if (c.input.empty()) body.flags = guest::exec_no_input;
  int spools[2] = {::memfd_create("out", MFD_CLOEXEC), ::memfd_create("err", MFD_CLOEXEC)};
  std::vector<int> fds = {spools[0], spools[1]}, ours;
  if (!c.input.empty()) {
    ours.push_back(memory_file("stdin", c.input.data(), c.input.size()));
    ::lseek(ours.back(), 0, SEEK_SET);
    fds.insert(fds.begin(), ours.back());
  }
  if (c.payload || strings.size() > 60000) {
    body.payload_fd = 1;
    ours.push_back(memory_file("strings", strings.data(), strings.size()));
    fds.push_back(ours.back());
    strings.clear();
  }
  send(guest::msg::exec, &body, sizeof body, strings, fds);
  for (const int fd : ours) ::close(fd);
  if (commands_.contains(c.id)) {  // a second start of a known id: the first one's spools count
    for (const int fd : spools) ::close(fd);
  } else {
    kept& k = commands_[c.id];
    k.spools[0] = spools[0];
    k.spools[1] = spools[1];
    k.cap = c.cap;
  }
  return c.id;
}

outcome aether_sandbox::wait(const std::string& id, milliseconds limit) {
  const auto until = clock::now() + limit;
  kept& k = commands_.at(id);
  while (!k.failed && !k.exited) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - clock::now());
    if (left.count() <= 0) throw std::runtime_error("command " + id + " did not end in time");
    if (!pump(left)) throw std::runtime_error("the channel ended while " + id + " ran");
  }
  if (k.spools[0] >= 0) {
    if (k.exited) {
      k.out = read_spool(k, 0);
      k.err = read_spool(k, 1);
    }
    for (int& fd : k.spools) {
      ::close(fd);
      fd = -1;
    }
  }
  return {k.failed, k.exited, k.out, k.err};
}

outcome aether_sandbox::sh(const std::string& script, milliseconds limit) {
  return run({.argv = {script}, .kind = guest::exec_kind::shell}, limit);
}

bool aether_sandbox::wait_started(const std::string& id, milliseconds limit) {
  const auto until = clock::now() + limit;
  kept& k = commands_.at(id);
  while (!k.started && !k.failed && !k.exited && clock::now() < until && pump(milliseconds(100))) {
  }
  return k.started;
}

bool aether_sandbox::wait_output(const std::string& id, milliseconds limit) {
  struct stat about = {};
  const int spool = commands_.at(id).spools[0];
  return wait_until(clock::now() + limit,
                    [&] { return ::fstat(spool, &about) == 0 && about.st_size > 0; });
}

bool aether_sandbox::pump(milliseconds limit) {
  pollfd p = {channel_, POLLIN, 0};
  if (::poll(&p, 1, static_cast<int>(limit.count())) <= 0) return true;
  char bytes[4096];
  for (;;) {
    const ssize_t n = ::recv(channel_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    on_datagram(bytes, static_cast<std::size_t>(n));
  }
}

void aether_sandbox::on_datagram(const char* bytes, std::size_t n) {
  guest::header head;
  must(n >= sizeof head, "short datagram");
  std::memcpy(&head, bytes, sizeof head);
  const auto type = static_cast<guest::msg>(head.type);
  const char* body = bytes + sizeof head;
  std::string id;
  if (n >= sizeof head + guest::max_command_id)
    id = std::string(body, ::strnlen(body, guest::max_command_id));
  ++seen_[{type, id}];
  if (head.seq != 0) received_ = std::max(received_, head.seq);
  if (type == guest::msg::hello) std::memcpy(&hello_.emplace(), body, sizeof *hello_);
  const auto it = commands_.find(id);
  if (it == commands_.end()) return;
  if (type == guest::msg::started) it->second.started = true;
  if (type == guest::msg::failed)
    std::memcpy(&it->second.failed.emplace(), body, sizeof(guest::failed_body));
  if (type == guest::msg::exited)
    std::memcpy(&it->second.exited.emplace(), body, sizeof(guest::exited_body));
}

guest::hello_body aether_sandbox::reconnect(std::uint32_t last_seq) {
  hello_.reset();
  sent_ = 0;
  received_ = last_seq;
  const guest::hello_body body = {
      .version = guest::channel_version, .last_seq = last_seq, .commands = 0};
  send(guest::msg::hello, &body, sizeof body);
  const auto until = clock::now() + std::chrono::seconds(5);
  while (!hello_) {
    if (!pump(milliseconds(100)) || clock::now() > until)
      throw std::runtime_error("no answer to hello");
  }
  return *hello_;
}

int aether_sandbox::seen(guest::msg type) const {
  int n = 0;
  for (const auto& [key, count] : seen_) n += key.first == type ? count : 0;
  return n;
}

int aether_sandbox::seen(guest::msg type, const std::string& id) const {
  const auto it = seen_.find({type, id});
  return it == seen_.end() ? 0 : it->second;
}

std::string aether_sandbox::read_spool(const kept& k, int stream) const {
  const guest::spool_layout layout{k.cap};
  const std::uint64_t total = k.exited->total[stream];
  std::string out;
  const auto copy = [&](std::uint64_t from, std::uint64_t to) {
    while (from < to) {
      const auto n = static_cast<std::size_t>(std::min(layout.contiguous(from), to - from));
      std::string piece(n, '\0');
      const auto at = static_cast<off_t>(layout.file_offset(from));
      const auto got = ::pread(k.spools[stream], piece.data(), n, at);
      must(got >= 0, "spool");
      out.append(piece, 0, static_cast<std::size_t>(got));
      from += n;
    }
  };
  copy(0, std::min(total, layout.dropped_from()));
  copy(layout.dropped_to(total), total);
  return out;
}

void aether_sandbox::hang_up() {
  if (channel_ >= 0) ::close(channel_);
  channel_ = -1;
}

std::optional<int> aether_sandbox::wait_end(milliseconds limit) {
  int status = 0;
  const bool ended = wait_until(clock::now() + limit,
                                [&] { return ::waitpid(aether_, &status, WNOHANG) == aether_; });
  if (!ended) return std::nullopt;
  aether_ = -1;
  return status;
}

bool aether_sandbox::alive() {
  return aether_ > 0 && !wait_end(milliseconds(0));
}

void aether_sandbox::limit_files(std::uint64_t most) const {
  limit(RLIMIT_NOFILE, most);
}

void aether_sandbox::limit_file_size(std::uint64_t most) const {
  limit(RLIMIT_FSIZE, most);
}

void aether_sandbox::limit(int resource, std::uint64_t most) const {
  // By a process of its uid: root itself may lack CAP_SYS_RESOURCE (prlimit(2)).
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit now = {};
    const auto which = static_cast<__rlimit_resource>(resource);
    const bool good = ::setresgid(uid_, uid_, uid_) == 0 && ::setresuid(uid_, uid_, uid_) == 0 &&
                      ::prlimit(aether_, which, nullptr, &now) == 0;
    now.rlim_cur = std::min<rlim_t>(most, now.rlim_max);
    ::_exit(good && ::prlimit(aether_, which, &now, nullptr) == 0 ? 0 : 1);
  }
  int status = 0;
  must(child > 0 && ::waitpid(child, &status, 0) == child && status == 0, "prlimit");
}

std::size_t aether_sandbox::open_files() const {
  const fs::directory_iterator files("/proc/" + std::to_string(aether_) + "/fd"), end;
  return static_cast<std::size_t>(std::distance(files, end));
}

std::vector<pid_t> aether_sandbox::processes(const std::string& which) const {
  std::vector<pid_t> pids;
  const auto add = [&](const fs::path& group) {
    std::ifstream in(group / "cgroup.procs");
    for (pid_t pid = 0; in >> pid;) pids.push_back(pid);
  };
  add(slot_ / which);
  std::error_code ignored;
  for (const auto& e : fs::directory_iterator(slot_ / which, ignored)) {
    if (e.is_directory(ignored)) add(e.path());
  }
  return pids;
}

bool skipped() {
  const std::string why = aether_sandbox::missing();
  if (!why.empty()) test::say_skipped(why);
  return !why.empty();
}

}  // namespace dsec::tests
