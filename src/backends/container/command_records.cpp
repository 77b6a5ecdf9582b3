#include "backends/container/command_records.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/ids.hpp"
#include "base/text.hpp"

namespace dsec::container {
namespace {

using backends::command_failed;

enum class type : std::uint8_t { begun = 1, exited = 2, failed = 3, dropped = 4 };

/// In front of each record. Numbers are as this machine has them: the file never leaves it.
struct frame {
  std::array<char, 4> magic;
  std::uint32_t length;  // of what follows
  std::uint64_t check;   // base::id_hash of what follows
};
constexpr std::array<char, 4> magic{'d', 'l', 'o', 'g'};

// Of texts, in bytes, and of arguments: one record stays well below max_record.
constexpr std::size_t max_argv = 4096, max_arguments = 1024, max_text = 4096;
constexpr std::size_t max_record = 64U << 10U;

constexpr std::uint8_t timed_out = 1, killed = 2, oom_killed = 4, has_size = 8;

class writer {
 public:
  explicit writer(type t) { put(t); }
  template <class T>
  writer& put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  writer& text(std::string_view t) {
    put(static_cast<std::uint32_t>(t.size()));
    bytes_ += t;
    return *this;
  }
  [[nodiscard]] std::string framed() const {
    const frame f{magic, static_cast<std::uint32_t>(bytes_.size()), base::id_hash(bytes_)};
    std::string out(reinterpret_cast<const char*>(&f), sizeof f);
    return out += bytes_;
  }

 private:
  std::string bytes_;
};

/// After the first read beyond the end everything is zero or empty, and good() false.
class reader {
 public:
  explicit reader(std::string_view bytes) : left_(bytes) {}
  template <class T>
  T take() {
    T value{};
    if (left_.size() < sizeof value) return spoil(), value;
    std::memcpy(&value, left_.data(), sizeof value);
    left_.remove_prefix(sizeof value);
    return value;
  }
  std::string text() {
    const auto n = take<std::uint32_t>();
    if (left_.size() < n) return spoil(), std::string();
    std::string t(left_.substr(0, n));
    left_.remove_prefix(n);
    return t;
  }
  std::string id() {
    auto t = text();
    if (!base::is_valid_command_id(t)) spoil();
    return t;
  }
  void spoil() {
    good_ = false;
    left_ = {};
  }
  [[nodiscard]] bool good() const { return good_; }

 private:
  std::string_view left_;
  bool good_ = true;
};

std::string payload(const begun_record& r) {
  writer w(type::begun);
  w.text(r.id).put(r.kind).put(r.output_cap).put(r.spool_cap).text(r.cwd).text(r.user);
  w.put(static_cast<std::uint32_t>(r.argv.size()));
  for (const auto& argument : r.argv) w.text(argument);
  return w.framed();
}

std::string payload(const exited_record& r) {
  const auto& e = r.event;
  const auto flag = [](bool on, std::uint8_t bit) { return on ? bit : std::uint8_t{0}; };
  const int flags = flag(e.timed_out, timed_out) | flag(e.killed, killed) |
                    flag(e.oom_killed, oom_killed) | flag(r.written_size.has_value(), has_size);
  const auto started =
      std::chrono::duration_cast<std::chrono::nanoseconds>(e.started.time_since_epoch());
  writer w(type::exited);
  w.text(e.id).put(std::int32_t{e.exit_code}).put(std::int32_t{e.signal});
  w.put(static_cast<std::uint8_t>(flags));
  w.put(static_cast<std::int64_t>(e.duration.count())).put(std::int64_t{started.count()});
  w.put(e.stdout_total).put(e.stderr_total).put(r.written_size.value_or(0));
  return w.framed();
}

std::string payload(const command_failed& r) {
  writer w(type::failed);
  w.text(r.id).put(r.why.code).put(std::int32_t{r.why.sys_errno});
  w.text(base::shown(r.why.message, max_text));
  return w.framed();
}

std::string payload(const dropped_record& r) {
  writer w(type::dropped);
  w.text(r.id).put(std::uint8_t{r.used_up});
  return w.framed();
}

begun_record take_begun(reader& r) {
  begun_record b;
  b.id = r.id();
  b.kind = r.take<backends::exec_kind>();
  if (b.kind > backends::exec_kind::write_file) r.spoil();
  b.output_cap = r.take<std::uint64_t>();
  b.spool_cap = r.take<std::uint64_t>();
  b.cwd = r.text();
  b.user = r.text();
  for (auto n = r.take<std::uint32_t>(); n > 0 && r.good(); --n) b.argv.push_back(r.text());
  return b;
}

exited_record take_exited(reader& r) {
  exited_record x;
  auto& e = x.event;
  e.id = r.id();
  e.exit_code = r.take<std::int32_t>();
  e.signal = r.take<std::int32_t>();
  const auto flags = r.take<std::uint8_t>();
  e.timed_out = (flags & timed_out) != 0;
  e.killed = (flags & killed) != 0;
  e.oom_killed = (flags & oom_killed) != 0;
  e.duration = std::chrono::microseconds(r.take<std::int64_t>());
  e.started = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(r.take<std::int64_t>())));
  e.stdout_total = r.take<std::uint64_t>();
  e.stderr_total = r.take<std::uint64_t>();
  const auto size = r.take<std::uint64_t>();
  if ((flags & has_size) != 0) x.written_size = size;
  return x;
}

command_failed take_failed(reader& r) {
  command_failed f;
  f.id = r.id();
  f.why.code = r.take<base::errc>();
  f.why.sys_errno = r.take<std::int32_t>();
  f.why.message = r.text();
  return f;
}

dropped_record take_dropped(reader& r) {
  dropped_record d;
  d.id = r.id();
  d.used_up = r.take<std::uint8_t>() != 0;
  return d;
}

std::optional<log_record> decode(std::string_view bytes) {
  reader r(bytes);
  std::optional<log_record> record;
  switch (r.take<type>()) {
    case type::begun:
      record = take_begun(r);
      break;
    case type::exited:
      record = take_exited(r);
      break;
    case type::failed:
      record = take_failed(r);
      break;
    case type::dropped:
      record = take_dropped(r);
      break;
  }
  return r.good() ? record : std::nullopt;
}

/// The frame at the beginning of `bytes` with what belongs to it; empty when there is no whole one.
std::string_view frame_at(std::string_view bytes) {
  frame f{};
  if (bytes.size() < sizeof f) return {};
  std::memcpy(&f, bytes.data(), sizeof f);
  if (f.magic != magic || f.length > max_record || bytes.size() - sizeof f < f.length) return {};
  if (base::id_hash(bytes.substr(sizeof f, f.length)) != f.check) return {};
  return bytes.substr(0, sizeof f + f.length);
}

}  // namespace

begun_record describe(const backends::exec_spec& spec, std::uint64_t spool_cap) {
  begun_record r;
  r.id = spec.id;
  r.kind = spec.kind;
  r.cwd = base::shown(spec.cwd, max_text);
  r.user = base::shown(spec.user, max_text);
  r.output_cap = spec.output_cap;
  r.spool_cap = spool_cap;
  auto left = max_argv;
  for (const auto& argument : spec.argv) {
    if (left == 0 || r.argv.size() == max_arguments) break;
    r.argv.push_back(base::shown(argument, left));
    left -= r.argv.back().size();
  }
  return r;
}

std::string encode(const log_record& record) {
  return std::visit([](const auto& r) { return payload(r); }, record);
}

/// Sets raw_ to the next whole frame at or behind at_; false when there is none.
bool log_reader::find_frame() {
  for (auto from = at_; from < bytes_.size(); ++from) {
    from = bytes_.find(std::string_view(magic.data(), magic.size()), from);
    if (from == std::string_view::npos) break;
    raw_ = frame_at(bytes_.substr(from));
    if (raw_.empty()) continue;
    unreadable_ += from - at_;
    at_ = from + raw_.size();
    return true;
  }
  raw_ = {};
  return false;
}

std::optional<log_record> log_reader::next() {
  while (find_frame()) {
    if (auto record = decode(raw_.substr(sizeof(frame)))) return record;
  }
  return std::nullopt;
}

}  // namespace dsec::container
