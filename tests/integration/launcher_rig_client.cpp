// The protocol half of launcher_rig.hpp.
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "launcher_rig.hpp"

namespace dsec::test {
namespace {

constexpr int patience_ms = 10000;
constexpr int end_patience_ms = 5000;

void wait_readable(int fd, int timeout_ms, const char* what) {
  pollfd p{fd, POLLIN, 0};
  if (::poll(&p, 1, timeout_ms) != 1) throw rig_error(std::string("no answer: ") + what);
}

template <std::size_t N>
void put(char (&field)[N], const std::string& value) {
  if (value.size() >= N) throw rig_error("too long: " + value);
  memcpy(field, value.data(), value.size());
}

bool reaches_end(int fd) {
  pollfd p{fd, POLLIN, 0};
  if (::poll(&p, 1, end_patience_ms) != 1) return false;
  char byte = 0;
  return ::recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

}  // namespace

launch_client::launch_client(const std::filesystem::path& path)
    : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  put(address.sun_path, path.string());
  if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw rig_error("cannot connect to the launcher");
}

reply launch_client::receive() {
  wait_readable(socket_.get(), patience_ms, "launcher");
  reply r;
  r.bytes.resize(8192);
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
  iovec data{r.bytes.data(), r.bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (n < static_cast<ssize_t>(sizeof(guest::launch_header)))
    throw rig_error("the launcher is gone");
  r.bytes.resize(static_cast<std::size_t>(n));
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    const auto count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      r.fds.emplace_back(fd);
    }
  }
  return r;
}

reply launch_client::exchange(const void* request, std::size_t size, const std::vector<int>& fds) {
  std::vector<char> control(CMSG_SPACE(std::max<std::size_t>(fds.size(), 1) * sizeof(int)));
  iovec data{const_cast<void*>(request), size};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0) throw rig_error("the launcher is gone");
  while (true) {
    reply r = receive();
    if (r.type() != static_cast<std::uint32_t>(guest::launch::exited)) return r;
    events_.push_back(r.as<guest::launch_exited>());
  }
}

std::string launch_client::outcome(const reply& r) {
  const auto& result = r.as<guest::launch_result>();
  if (result.sys_errno == 0) return "done";
  return std::string(result.step) + ": " + ::strerrorname_np(result.sys_errno);
}

std::string launch_client::attach(const std::string& name, const std::filesystem::path& blob) {
  guest::launch_layer request{};
  put(request.name, name);
  const unique_fd file(::open(blob.c_str(), O_RDONLY | O_CLOEXEC));
  return order(guest::launch::attach_layer, request, {file.get()});
}

std::string launch_client::detach(const std::string& name) {
  guest::launch_layer request{};
  put(request.name, name);
  return order(guest::launch::detach_layer, request);
}

std::string launch_client::make_slot(std::uint32_t number, std::uint32_t base,
                                     std::uint32_t aether) {
  return order(guest::launch::make_slot, guest::launch_slot{{}, number, base, aether});
}

std::string launch_client::drop_slot(std::uint32_t number) {
  return order(guest::launch::drop_slot, guest::launch_slot{{}, number, 0, 0});
}

std::string launch_client::release(const std::string& sandbox) {
  guest::launch_id request{};
  put(request.sandbox, sandbox);
  return order(guest::launch::release, request);
}

struct bare {
  guest::launch_header h;
};

std::string launch_client::shutdown() {
  return order(guest::launch::shutdown, bare{});
}

guest::launch_hello launch_client::hello(unique_fd* layers_ns) {
  guest::launch_hello request{};
  request.version = guest::launch_version;
  reply r = ask(guest::launch::hello, request);
  if (layers_ns != nullptr) *layers_ns = std::move(r.fds.at(0));
  return r.as<guest::launch_hello>();
}

std::map<std::string, launch_client::listed> launch_client::list() {
  std::map<std::string, listed> all;
  reply r = ask(guest::launch::list, bare{});
  while (r.type() == static_cast<std::uint32_t>(guest::launch::listed)) {
    const auto what = r.as<guest::launch_listed>();
    all[what.sandbox] = {what, std::move(r.fds.at(0)), std::move(r.fds.at(1))};
    r = receive();
  }
  if (outcome(r) != "done") throw rig_error("list: " + outcome(r));
  return all;
}

guest::launch_exited launch_client::wait_exited() {
  if (events_.empty()) events_.push_back(receive().as<guest::launch_exited>());
  const auto first = events_.front();
  events_.erase(events_.begin());
  return first;
}

bool launch_client::closed() {
  return reaches_end(socket_.get());
}

std::string inside::ask(char kind, const std::string& text) const {
  const std::string request = kind + text;
  if (::send(channel_.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0)
    throw rig_error("the stand-in is gone");
  wait_readable(channel_.get(), patience_ms, "stand-in");
  std::string answer(65536, '\0');
  const ssize_t n = ::recv(channel_.get(), answer.data(), answer.size(), 0);
  if (n <= 0) throw rig_error("the stand-in is gone");
  answer.resize(static_cast<std::size_t>(n));
  return answer;
}

namespace {

inside::result parse_result(const std::string& answer) {
  int status = 0;
  memcpy(&status, answer.data(), sizeof status);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          answer.substr(sizeof status)};
}

}  // namespace

inside::result inside::sh(const std::string& script) const {
  return parse_result(ask('s', script));
}
inside::result inside::program(const std::string& path) const {
  return parse_result(ask('x', path));
}
std::string inside::self() const {
  return ask('S', "");
}
std::string inside::boot() const {
  return ask('b', "");
}

void inside::quit(int code) const {
  const char request[] = {'q', static_cast<char>(code)};
  if (::send(channel_.get(), request, sizeof request, MSG_NOSIGNAL) < 0)
    throw rig_error("the stand-in is gone");
}

bool inside::closes() const {
  return reaches_end(channel_.get());
}

}  // namespace dsec::test
