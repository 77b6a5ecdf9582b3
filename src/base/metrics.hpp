// Counters, gauges and histograms, and the Prometheus text in which they are read (exposition
// format 0.0.4). Every value is a few atomics: any thread counts, without a lock and without
// allocating. Whoever counts owns the object; the text is made when somebody asks for it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace dsec::base {

/// Only ever grows.
class counter {
 public:
  void add(std::uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

class gauge {
 public:
  void set(std::int64_t v) { value_.store(v, std::memory_order_relaxed); }
  void add(std::int64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

/// How long something took.
class histogram {
 public:
  /// Upper ends of the buckets; what is longer counts only in the whole.
  static constexpr std::array<std::uint32_t, 18> bounds_us{
      250,       500,       1'000,      2'500,      5'000,      10'000,
      25'000,    50'000,    100'000,    250'000,    500'000,    1'000'000,
      2'500'000, 5'000'000, 10'000'000, 30'000'000, 60'000'000, 300'000'000};

  void observe(std::chrono::microseconds took);

  struct reading {
    std::array<std::uint64_t, bounds_us.size()> up_to{};  // cumulative
    std::uint64_t count = 0;
    double sum_seconds = 0;
  };
  /// Of a moment: never more in a bucket than in the next one.
  [[nodiscard]] reading read() const;

 private:
  std::array<std::atomic<std::uint64_t>, bounds_us.size() + 1> in_{};
  std::atomic<std::uint64_t> sum_us_{0};
};

/// Writes families of samples, each under its HELP and TYPE.
class exposition {
 public:
  struct label {
    std::string_view name, value;
  };
  using labels = std::initializer_list<label>;

  /// `help` is one sentence. What follows up to the next family belongs to it.
  void begin_counter(std::string_view name, std::string_view help);
  void begin_gauge(std::string_view name, std::string_view help);
  void begin_histogram(std::string_view name, std::string_view help);

  void sample(double value, labels with = {});
  void sample(const histogram& h, labels with = {});

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void begin(std::string_view name, std::string_view help, std::string_view type);
  void line(std::string_view suffix, labels with, std::string_view upper_end, double value);

  std::string text_, name_;
};

}  // namespace dsec::base
