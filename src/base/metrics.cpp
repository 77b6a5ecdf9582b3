#include "base/metrics.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace dsec::base {
namespace {

/// The shortest decimal that reads back the same; without an exponent where that is short, as the
/// ends of buckets are names to whoever asks for one.
std::string number(double value) {
  std::array<char, 32> buffer{};
  char* const begin = buffer.data();
  char* const end = begin + buffer.size();
  const auto size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-6 && size < 1e15);
  const auto written = plain ? std::to_chars(begin, end, value, std::chars_format::fixed)
                             : std::to_chars(begin, end, value);
  return {begin, written.ptr};
}

void escape(std::string& out, std::string_view text, bool quote) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || (quote && c == '"')) out += '\\';
    out += c;
  }
}

}  // namespace

void histogram::observe(std::chrono::microseconds took) {
  const auto us = static_cast<std::uint64_t>(std::max<std::int64_t>(0, took.count()));
  const auto bucket = std::lower_bound(bounds_us.begin(), bounds_us.end(), us);
  in_[static_cast<std::size_t>(bucket - bounds_us.begin())].fetch_add(1, std::memory_order_relaxed);
  sum_us_.fetch_add(us, std::memory_order_relaxed);
}

histogram::reading histogram::read() const {
  reading r;
  for (std::size_t i = 0; i < in_.size(); ++i) {
    r.count += in_[i].load(std::memory_order_relaxed);
    if (i < r.up_to.size()) r.up_to[i] = r.count;
  }
  r.sum_seconds = static_cast<double>(sum_us_.load(std::memory_order_relaxed)) / 1e6;
  return r;
}

void exposition::begin(std::string_view name, std::string_view help, std::string_view type) {
  name_ = name;
  text_.append("# HELP ").append(name).append(" ");
  escape(text_, help, false);
  text_.append("\n# TYPE ").append(name).append(" ").append(type).append("\n");
}

void exposition::begin_counter(std::string_view name, std::string_view help) {
  begin(name, help, "counter");
}
void exposition::begin_gauge(std::string_view name, std::string_view help) {
  begin(name, help, "gauge");
}
void exposition::begin_histogram(std::string_view name, std::string_view help) {
  begin(name, help, "histogram");
}

void exposition::line(std::string_view suffix, labels with, std::string_view upper_end,
                      double value) {
  text_.append(name_).append(suffix);
  char before = '{';
  const auto put = [&](std::string_view name, std::string_view text) {
    text_ += std::exchange(before, ',');
    text_.append(name).append("=\"");
    escape(text_, text, true);
    text_ += '"';
  };
  for (const auto& l : with) put(l.name, l.value);
  if (!upper_end.empty()) put("le", upper_end);
  if (before == ',') text_ += '}';
  text_.append(" ").append(number(value)).append("\n");
}

void exposition::sample(double value, labels with) {
  line("", with, "", value);
}

void exposition::sample(const histogram& h, labels with) {
  const auto r = h.read();
  for (std::size_t i = 0; i < r.up_to.size(); ++i) {
    line("_bucket", with, number(histogram::bounds_us[i] / 1e6), static_cast<double>(r.up_to[i]));
  }
  line("_bucket", with, "+Inf", static_cast<double>(r.count));
  line("_sum", with, "", r.sum_seconds);
  line("_count", with, "", static_cast<double>(r.count));
}

}  // namespace dsec::base
