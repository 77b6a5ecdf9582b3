#include "base/metrics.hpp"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using dsec::base::counter;
using dsec::base::exposition;
using dsec::base::gauge;
using dsec::base::histogram;

TEST_CASE("a histogram counts each time in the first bucket that holds it, cumulatively") {
  histogram h;
  h.observe(250us);
  h.observe(251us);
  h.observe(2s);
  h.observe(1h);
  h.observe(-5us);  // a clock that was set back
  const auto r = h.read();
  CHECK(r.up_to[0] == 2);
  CHECK(r.up_to[1] == 3);
  CHECK(r.up_to[12] == 4);
  CHECK(r.up_to.back() == 4);
  CHECK(r.count == 5);
  CHECK(r.sum_seconds == Approx(3602.000501));
}

TEST_CASE("nothing that threads count is lost") {
  counter c;
  gauge g;
  histogram h;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        c.add();
        g.add(i % 2 == 0 ? 3 : -2);
        h.observe(1ms);
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(c.value() == 40'000);
  CHECK(g.value() == 20'000);
  CHECK(h.read().count == 40'000);
  CHECK(h.read().sum_seconds == Approx(40));
}

TEST_CASE("the text has HELP and TYPE once per family, and labels and help are escaped") {
  exposition out;
  out.begin_counter("dsec_things_total", "Things, \\ and\nmore \"of\" them.");
  out.sample(3);
  out.sample(4e15, {{"kind", "a\\b\"c\nd"}, {"code", "ok"}});
  out.begin_gauge("dsec_level_ratio", "How much.");
  out.sample(0.25);
  out.sample(-1);
  CHECK(out.take() ==
        "# HELP dsec_things_total Things, \\\\ and\\nmore \"of\" them.\n"
        "# TYPE dsec_things_total counter\n"
        "dsec_things_total 3\n"
        "dsec_things_total{kind=\"a\\\\b\\\"c\\nd\",code=\"ok\"} 4e+15\n"
        "# HELP dsec_level_ratio How much.\n"
        "# TYPE dsec_level_ratio gauge\n"
        "dsec_level_ratio 0.25\n"
        "dsec_level_ratio -1\n");
}

TEST_CASE("a histogram is written with its buckets in seconds, sum and count") {
  histogram h;
  h.observe(700us);
  exposition out;
  out.begin_histogram("dsec_time_seconds", "Time.");
  out.sample(h, {{"request", "exec"}});
  const auto text = out.take();
  const auto has = [&](const char* line) { return text.find(line) != std::string::npos; };
  CHECK(has("# TYPE dsec_time_seconds histogram\n"));
  CHECK(has("dsec_time_seconds_bucket{request=\"exec\",le=\"0.0005\"} 0\n"));
  CHECK(has("dsec_time_seconds_bucket{request=\"exec\",le=\"0.001\"} 1\n"));
  CHECK(has("dsec_time_seconds_bucket{request=\"exec\",le=\"300\"} 1\n"));
  CHECK(has("dsec_time_seconds_bucket{request=\"exec\",le=\"+Inf\"} 1\n"));
  CHECK(has("dsec_time_seconds_sum{request=\"exec\"} 0.0007\n"));
  CHECK(has("dsec_time_seconds_count{request=\"exec\"} 1\n"));
}
