#include "backends/container/command_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "backends/sys/file.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"
#include "base/write_all.hpp"

namespace dsec::container {
namespace {

using base::fail_errno;
using base::result;

constexpr const char* log_name = "commands.log";
constexpr const char* new_log_name = "commands.log.new";
constexpr const char* used_name = "ids.used";

/// It is compacted when it is twice as long as it was after the last time, and this.
constexpr std::uint64_t slack = 64U << 10U;

/// All that a log says, record by record.
class log_state {
 public:
  struct entry {
    begun_record begun;
    std::optional<std::variant<exited_record, backends::command_failed>> end;
    bool settled = false;
    std::vector<std::string_view> raw;  // its records
  };

  explicit log_state(log_reader& reader) {
    while (auto record = reader.next())
      std::visit([&](auto& r) { apply(std::move(r), reader.raw()); }, *record);
    limit_settled();
  }

  template <class F>
  void each(F f) {
    for (auto& e : entries_) {
      if (e) f(*e);
    }
  }
  [[nodiscard]] const std::vector<std::uint64_t>& used_up() const { return used_up_; }

 private:
  entry* find(const std::string& id) {
    const auto found = index_.find(id);
    return found == index_.end() ? nullptr : &*entries_[found->second];
  }

  void apply(begun_record r, std::string_view raw) {
    // A write that is known no longer, for there were too many, may come again.
    if (const auto* e = find(r.id); e != nullptr && e->settled) {
      remove(r.id);
      --settled_;
    }
    if (!index_.emplace(r.id, entries_.size()).second) return;
    entries_.push_back(entry{std::move(r), std::nullopt, false, {raw}});
  }
  template <class End>
  void end(const std::string& id, End what, std::string_view raw) {
    auto* e = find(id);
    if (e == nullptr || e->end) return;
    e->end = std::move(what);
    e->raw.push_back(raw);
  }
  void apply(exited_record r, std::string_view raw) {
    const auto id = r.event.id;
    end(id, std::move(r), raw);
  }
  void apply(backends::command_failed r, std::string_view raw) {
    const auto id = r.id;
    end(id, std::move(r), raw);
  }
  void apply(const dropped_record& r, std::string_view raw) {
    auto* e = find(r.id);
    if (e != nullptr && r.used_up && wrote(*e)) {
      e->settled = true;
      e->raw.push_back(raw);
      ++settled_;
      return;
    }
    if (e != nullptr) remove(r.id);
    if (r.used_up) used_up_.push_back(base::id_hash(r.id));
  }

  static bool wrote(const entry& e) {
    const auto* exited = e.end ? std::get_if<exited_record>(&*e.end) : nullptr;
    return !e.settled && exited != nullptr && exited->written_size.has_value();
  }
  void remove(const std::string& id) {
    const auto found = index_.find(id);
    entries_[found->second].reset();
    index_.erase(found);
  }
  void limit_settled() {
    for (auto& e : entries_) {
      if (settled_ <= command_log::max_settled_writes) return;
      if (!e || !e->settled) continue;
      used_up_.push_back(base::id_hash(e->begun.id));
      e.reset();
      --settled_;
    }
  }

  std::vector<std::optional<entry>> entries_;  // in order of starting
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<std::uint64_t> used_up_;
  std::size_t settled_ = 0;
};

command_log::command to_command(log_state::entry&& e) {
  command_log::command c;
  c.known.id = std::move(e.begun.id);
  c.known.kind = e.begun.kind;
  c.known.argv = std::move(e.begun.argv);
  c.known.output_cap = e.begun.output_cap;
  c.cwd = std::move(e.begun.cwd);
  c.user = std::move(e.begun.user);
  c.spool_cap = e.begun.spool_cap;
  c.settled = e.settled;
  if (!e.end) return c;
  if (auto* exited = std::get_if<exited_record>(&*e.end)) {
    c.known.started = exited->event.started;
    c.known.written_size = exited->written_size;
    c.known.end = std::move(exited->event);
  } else {
    c.known.end = std::get<backends::command_failed>(std::move(*e.end));
  }
  return c;
}

/// The next `size` bytes, or what there is of them.
result<std::string> read_to(int fd, std::uint64_t size) {
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto n = ::read(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("cannot read a command log");
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

/// Empty when there is no such file.
result<std::string> read_if_there(const std::filesystem::path& path) {
  auto bytes = sys::read_file(path);
  if (!bytes && bytes.error().sys_errno == ENOENT) return std::string();
  return bytes;
}

}  // namespace

result<void> command_log::prepare(const std::filesystem::path& directory) {
  return sys::open_at(AT_FDCWD, directory / log_name, O_WRONLY | O_CREAT, 0600)
      .map([](const sys::unique_fd&) {});
}

bool command_log::owns(std::string_view file_name) {
  return file_name == log_name || file_name == used_name;
}

result<command_log::contents> command_log::load() {
  const std::scoped_lock lock(mutex_);
  const auto path = directory_ / log_name;
  DSEC_TRY(const auto bytes, read_if_there(path));
  log_reader reader(bytes);
  log_state state(reader);
  if (reader.whole() < bytes.size() &&
      ::truncate(path.c_str(), static_cast<off_t>(reader.whole())) != 0)
    return fail_errno("cannot cut '" + path.string() + "'");
  if (reader.unreadable() > 0)
    base::log::error("command_log_damaged",
                     {{"path", path.native()}, {"bytes", reader.unreadable()}});
  contents all;
  state.each([&](log_state::entry& e) { all.commands.push_back(to_command(std::move(e))); });
  DSEC_TRY(all.used_up, load_used());
  all.used_up.insert(all.used_up.end(), state.used_up().begin(), state.used_up().end());
  // A compaction that was killed has left what it was about to replace, and perhaps hashes twice.
  ::unlink((directory_ / new_log_name).c_str());
  std::sort(all.used_up.begin(), all.used_up.end());
  all.used_up.erase(std::unique(all.used_up.begin(), all.used_up.end()), all.used_up.end());
  size_ = kept_ = reader.whole();
  return all;
}

result<std::vector<std::uint64_t>> command_log::load_used() const {
  DSEC_TRY(const auto bytes, read_if_there(directory_ / used_name));
  std::vector<std::uint64_t> hashes(bytes.size() / sizeof(std::uint64_t));
  if (!hashes.empty())
    std::memcpy(hashes.data(), bytes.data(), hashes.size() * sizeof(std::uint64_t));
  return hashes;
}

result<void> command_log::begin(const begun_record& record) {
  const auto bytes = encode(record);
  const std::scoped_lock lock(mutex_);
  DSEC_CHECK(open_locked(O_CREAT));
  return append_locked(bytes);
}

void command_log::note(const log_record& record, std::function<void()> then) {
  const auto bytes = encode(record);
  const std::scoped_lock lock(mutex_);
  auto written = open_to_note_locked();
  if (written && !file_) return;
  if (written) written = append_locked(bytes);
  if (!written) {
    if (late_.empty())
      base::log::warn("command_log_late", {{"error", written.error().to_string()}});
    late_ += bytes;
    if (then) when_written_.push_back(std::move(then));
  } else if (then) {
    then();
  }
}

/// Without a file afterwards: the sandbox's files are removed, and with them whatever is late.
result<void> command_log::open_to_note_locked() {
  auto opened = open_locked(0);
  if (opened || opened.error().sys_errno != ENOENT) return opened;
  late_.clear();
  when_written_.clear();
  return {};
}

bool command_log::lagging() {
  const std::scoped_lock lock(mutex_);
  if (late_.empty() || writing_late_) return false;
  return writing_late_ = true;
}

result<void> command_log::write_late() {
  const std::scoped_lock lock(mutex_);
  if (!late_.empty()) DSEC_CHECK(open_to_note_locked());
  if (!late_.empty()) DSEC_CHECK(append_locked({}));
  writing_late_ = false;
  return {};
}

result<void> command_log::open_locked(int create) {
  if (file_) return {};
  DSEC_TRY(file_, sys::open_at(AT_FDCWD, directory_ / log_name,
                               O_WRONLY | O_APPEND | O_NOFOLLOW | create, 0600));
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) return fail_errno("cannot stat a command log");
  size_ = static_cast<std::uint64_t>(info.st_size);
  return {};
}

result<void> command_log::append_locked(std::string_view record) {
  if (late_.empty()) return write_locked(record);
  DSEC_CHECK(write_locked(late_ + std::string(record)));
  late_.clear();
  for (auto& then : std::exchange(when_written_, {})) then();
  base::log::info("command_log_written", {{"path", (directory_ / log_name).native()}});
  return {};
}

/// Whole or not at all: what a full disk took in part is cut off again.
result<void> command_log::write_locked(std::string_view bytes) {
  auto written = base::write_all(file_.get(), bytes, (directory_ / log_name).native());
  if (written) {
    size_ += bytes.size();
    return {};
  }
  if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) {
    base::log::warn("command_log_not_cut", {{"errno", errno}});
    file_.reset();  // the next record looks where the file ends
  }
  return written;
}

bool command_log::grown() {
  const std::scoped_lock lock(mutex_);
  if (compacting_ || size_ <= 2 * kept_ + slack) return false;
  return compacting_ = true;
}

result<void> command_log::compact() {
  auto done = rewrite();
  const std::scoped_lock lock(mutex_);
  compacting_ = false;
  // Not again before it has grown as much once more, whatever was wrong.
  kept_ = size_;
  return done;
}

/// Records may be appended meanwhile: only while those are copied does anybody wait.
result<void> command_log::rewrite() {
  const auto path = directory_ / log_name, next = directory_ / new_log_name;
  DSEC_TRY(const auto old, sys::open_at(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW));
  DSEC_TRY(const auto bytes, read_to(old.get(), whole_size()));
  log_reader reader(bytes);
  log_state state(reader);
  std::string kept;
  state.each([&](const log_state::entry& e) {
    for (const auto& raw : e.raw) kept += raw;
  });
  // First, so that at no moment an id is in neither file.
  DSEC_CHECK(add_used(state.used_up()));
  auto replaced = replace(next, kept, old.get());
  if (!replaced) ::unlink(next.c_str());
  return replaced;
}

std::uint64_t command_log::whole_size() {
  const std::scoped_lock lock(mutex_);
  return size_;
}

/// `old` stands behind what `kept` was made of.
result<void> command_log::replace(const std::filesystem::path& next, std::string_view kept,
                                  int old) {
  constexpr int flags = O_WRONLY | O_APPEND | O_CREAT | O_TRUNC | O_NOFOLLOW;
  DSEC_TRY(auto file, sys::open_at(AT_FDCWD, next, flags, 0600));
  DSEC_CHECK(base::write_all(file.get(), kept, next.native()));
  const std::scoped_lock lock(mutex_);
  DSEC_TRY(const auto added, sys::read_all(old, log_name));
  DSEC_CHECK(base::write_all(file.get(), added, next.native()));
  if (::rename(next.c_str(), (directory_ / log_name).c_str()) != 0)
    return fail_errno("cannot replace a command log by '" + next.string() + "'");
  if (file_) file_ = std::move(file);
  size_ = kept.size() + added.size();
  return {};
}

result<void> command_log::add_used(const std::vector<std::uint64_t>& hashes) const {
  if (hashes.empty()) return {};
  const auto path = directory_ / used_name;
  DSEC_TRY(const auto file, sys::open_at(AT_FDCWD, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return fail_errno("cannot stat '" + path.string() + "'");
  // From a whole hash on: one that a killed process wrote in part is written over.
  const auto end =
      info.st_size / static_cast<off_t>(sizeof hashes[0]) * static_cast<off_t>(sizeof hashes[0]);
  if (::lseek(file.get(), end, SEEK_SET) < 0)
    return fail_errno("cannot seek in '" + path.string() + "'");
  return base::write_all(file.get(), std::as_bytes(std::span(hashes)), path.native());
}

void command_log::close() {
  const std::scoped_lock lock(mutex_);
  file_.reset();
}

}  // namespace dsec::container
