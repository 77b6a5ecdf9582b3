#include "cli/state_dir.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

#include "auth/api_key.hpp"
#include "fs/files.hpp"

namespace dsec::cli {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;

// POSIX record locks rather than flock(2): F_GETLK names the holder, so `dsecd stop` needs no pid
// file that lies. Their price (fcntl(2)): closing any descriptor of the file drops the lock, so a
// holder opens it only once. How much of the file is locked says what for: each excludes the other.
constexpr off_t to_the_end = 0, first_byte = 1;

struct flock request_for(lock_use use) {
  struct flock f {};
  f.l_type = F_WRLCK;
  f.l_whence = SEEK_SET;
  f.l_len = use == lock_use::serve ? to_the_end : first_byte;
  return f;
}

/// `purge` deletes the file that it holds: a lock on what has no name any more excludes nobody.
bool has_name(int fd) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 && st.st_nlink > 0;
}

base::result<void> write_whole(const std::filesystem::path& file, const std::string& text) {
  return fs::write_file_power(file, file.string() + ".tmp", text);
}

std::string read_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

base::result<void> claim_for(const base::paths& paths, const std::string& instance) {
  const auto owner = instance_of(paths);
  if (owner == instance) return {};
  if (owner.empty()) return write_whole(paths.instance_file(), instance + "\n");
  return fail(errc::conflict, "state directory '" + paths.state().string() +
                                  "' belongs to instance '" + owner + "', not '" + instance +
                                  "'; give --instance " + owner + " or another --state");
}

base::result<void> make_private(const std::filesystem::path& state) {
  std::error_code ec;
  std::filesystem::create_directories(state, ec);
  if (ec)
    return fail(
        base::from_errno("cannot make state directory '" + state.string() + "'", ec.value()));
  if (::chmod(state.c_str(), 0700) != 0)
    return fail_errno("cannot make state directory '" + state.string() + "' private");
  return {};
}

base::error held_by_another(const base::paths& paths) {
  const auto found = find_lock_owner(paths);
  auto text = "state directory '" + paths.state().string() + "' is in use";
  if (!found || !*found) return {errc::already_exists, text + "; try again", 0};
  text += " by pid " + std::to_string((*found)->pid);
  return {errc::already_exists,
          text + ((*found)->use == lock_use::serve
                      ? "; stop that dsecd (dsecd stop) or give another --state"
                      : ", a `dsecd stop --all` or `dsecd purge`; wait for its end"),
          0};
}

}  // namespace

base::result<state_lock> state_lock::acquire(const base::paths& paths, const std::string& instance,
                                             lock_use use) {
  if (use == lock_use::serve) DSEC_CHECK(make_private(paths.state()));
  const int fd = ::open(paths.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return fail_errno("cannot open '" + paths.lock().string() + "'");
  state_lock lock(paths, fd);
  auto request = request_for(use);
  if (::fcntl(fd, F_SETLK, &request) != 0 || !has_name(fd)) return fail(held_by_another(paths));
  DSEC_CHECK(claim_for(paths, instance));
  return lock;
}

state_lock::state_lock(state_lock&& other) noexcept
    : paths_(std::move(other.paths_)), fd_(std::exchange(other.fd_, -1)) {}

state_lock::~state_lock() {
  if (fd_ >= 0) ::close(fd_);
}

base::result<void> state_lock::publish_url(const std::string& url) const {
  // Its time says that it holds again.
  if (read_line(paths_.url()) == url &&
      ::utimensat(AT_FDCWD, paths_.url().c_str(), nullptr, 0) == 0)
    return {};
  return write_whole(paths_.url(), url + "\n");
}

std::string instance_of(const base::paths& paths) {
  return read_line(paths.instance_file());
}

base::result<std::optional<lock_owner>> find_lock_owner(const base::paths& paths) {
  const int fd = ::open(paths.lock().c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return std::optional<lock_owner>();
    return fail_errno("cannot open '" + paths.lock().string() + "'");
  }
  auto request = request_for(lock_use::serve);
  const int rc = ::fcntl(fd, F_GETLK, &request);
  const int number = errno;
  ::close(fd);
  if (rc != 0)
    return fail(
        base::from_errno("cannot query the lock of '" + paths.state().string() + "'", number));
  if (request.l_type == F_UNLCK) return std::optional<lock_owner>();
  return lock_owner{request.l_pid, request.l_len == to_the_end ? lock_use::serve : lock_use::clear};
}

base::result<std::string> load_or_make_api_key(const base::paths& paths) {
  struct stat st {};
  if (::stat(paths.api_key().c_str(), &st) == 0) {
    if ((st.st_mode & 077) != 0) {
      return fail(errc::permission_denied,
                  "API key file '" + paths.api_key().string() +
                      "' can be read by others; chmod 600 it, or remove it to get a new key");
    }
    auto key = read_line(paths.api_key());
    if (key.size() < 32) {
      return fail(errc::corrupt, "API key file '" + paths.api_key().string() +
                                     "' holds no key; remove it to get a new one");
    }
    return key;
  }
  auto key = auth::new_api_key();
  DSEC_CHECK(write_whole(paths.api_key(), key + "\n"));
  return key;
}

}  // namespace dsec::cli
