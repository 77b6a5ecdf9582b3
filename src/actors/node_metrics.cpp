#include "actors/node_metrics.hpp"

#include <algorithm>
#include <map>

#include "actors/health.hpp"
#include "actors/request_name.hpp"

namespace dsec::actors {
namespace {

using base::errc;
using base::exposition;

errc code_of(const proto::frame& answer) {
  auto code = errc::ok;
  static_cast<void>(proto::view<proto::Reply>(answer).read([&](proto::Reply::Reader reply) {
    if (!reply.getBody().isError()) return;
    const auto name = reply.getBody().getError().getCode();
    code = base::parse_errc({name.begin(), name.size()}).value_or(errc::internal);
  }));
  return code;
}

template <class T, std::size_t n>
T& at_most(std::array<T, n>& row, std::size_t i) {
  return row[std::min(i, n - 1)];
}

void put_requests(exposition& out, const node_metrics& m) {
  const auto each = [&](auto&& put) {
    for (std::size_t kind = 0; kind < m.requests.size(); ++kind) {
      const auto& row = m.requests[kind];
      if (row.took.read().count > 0)
        put(name_of(static_cast<proto::Request::Body::Which>(kind)), row);
    }
  };
  out.begin_counter("dsec_requests_total", "Requests answered, by kind and error code.");
  each([&](std::string_view name, const node_metrics::request_row& row) {
    for (std::size_t code = 0; code < row.by_code.size(); ++code) {
      const auto n = row.by_code[code].value();
      if (n == 0) continue;
      out.sample(static_cast<double>(n),
                 {{"request", name}, {"code", base::to_string(static_cast<errc>(code))}});
    }
  });
  out.begin_histogram("dsec_request_duration_seconds",
                      "From a request to its answer; an exec that waits takes as long as its "
                      "command.");
  each([&](std::string_view name, const node_metrics::request_row& row) {
    out.sample(row.took, {{"request", name}});
  });
}

void put_connections(exposition& out, const node_metrics& m) {
  out.begin_gauge("dsec_connections", "Clients connected now.");
  out.sample(static_cast<double>(m.connections.value()));
  out.begin_counter("dsec_connections_total", "Clients that have connected.");
  out.sample(static_cast<double>(m.connections_opened.value()));
  out.begin_counter("dsec_received_bytes_total", "Bytes of requests.");
  out.sample(static_cast<double>(m.received_bytes.value()));
  out.begin_counter("dsec_sent_bytes_total", "Bytes of replies.");
  out.sample(static_cast<double>(m.sent_bytes.value()));
}

void put_sandboxes(exposition& out, const node_metrics& m, const backends::backend& backend) {
  out.begin_gauge("dsec_sandboxes",
                  "Sandboxes by phase, ended ones until their retention is over.");
  for (std::size_t p = 0; p < m.sandboxes.size(); ++p) {
    out.sample(static_cast<double>(m.sandboxes[p].value()),
               {{"phase", base::to_string(static_cast<base::phase>(p))}});
  }
  out.begin_gauge("dsec_creates_waiting", "Creates in the admission queue.");
  out.sample(static_cast<double>(m.creates_waiting.value()));
  out.begin_gauge("dsec_admitted_memory_bytes", "Memory limits of living sandboxes, together.");
  out.sample(static_cast<double>(m.admitted_memory_bytes.value()));
  const auto stats = backend.stats();
  out.begin_gauge("dsec_ready_slots", "Slots made ahead for creates to come.");
  out.sample(stats.slots_ready);
  out.begin_counter("dsec_launcher_deaths_total", "Launchers that died under this dsecd.");
  out.sample(static_cast<double>(stats.launcher_deaths));
  out.begin_counter("dsec_launcher_restarts_total",
                    "Launchers that took the place of dead ones and hold all sandboxes.");
  out.sample(static_cast<double>(stats.launcher_restarts));
}

void put_workers(exposition& out, const std::map<std::string, std::string>& edges) {
  std::map<std::string_view, unsigned> by_state{
      {"connected", 0}, {"joining", 0}, {"unreachable", 0}};
  for (const auto& [edge, state] : edges) ++by_state[state];
  out.begin_gauge("dsec_workers", "Workers that the coordinator knows, by what becomes of them.");
  for (const auto& [state, n] : by_state) out.sample(n, {{"state", state}});
}

void put_pools(exposition& out, health_board& health) {
  const auto pools = health.pools();
  const auto put = [&](auto&& value) {
    for (const auto& p : pools) out.sample(static_cast<double>(value(p)), {{"pool", p.name}});
  };
  out.begin_gauge("dsec_pool_queued_jobs", "Blocking jobs that wait for a thread.");
  put([](const base::pool_health& p) { return p.queued; });
  out.begin_gauge("dsec_pool_running_jobs", "Blocking jobs under way.");
  put([](const base::pool_health& p) { return p.running; });
  out.begin_gauge("dsec_pool_stuck_jobs", "Blocking jobs under way for more than 30 s.");
  put([](const base::pool_health& p) { return p.stuck; });
  out.begin_counter("dsec_pool_abandoned_jobs_total", "Blocking jobs that were given up.");
  put([](const base::pool_health& p) { return p.abandoned; });
}

void put_actors(exposition& out, const node_metrics& m, health_board& health) {
  out.begin_counter("dsec_actor_restarts_total", "Actors that died and were started again.");
  out.sample(static_cast<double>(health.restarts()));
  out.begin_histogram("dsec_scheduling_delay_seconds",
                      "How late an actor got to run, by the watchdog's beats.");
  out.sample(m.scheduling_delay);
  out.begin_gauge("dsec_unhealthy_reasons", "Reasons for which /healthz is not 200.");
  out.sample(static_cast<double>(health.reasons().size()));
}

}  // namespace

void node_metrics::count_request(proto::Request::Body::Which which, const proto::frame& answer,
                                 std::chrono::microseconds took) {
  auto& row = at_most(requests, static_cast<std::size_t>(which));
  at_most(row.by_code, static_cast<std::size_t>(code_of(answer))).add();
  row.took.observe(took);
}

std::string metrics_page(const node_metrics& counted, health_board& health,
                         const backends::backend* backend) {
  exposition out;
  if (backend != nullptr) put_sandboxes(out, counted, *backend);
  if (const auto edges = health.edges()) put_workers(out, *edges);
  put_requests(out, counted);
  put_connections(out, counted);
  put_pools(out, health);
  put_actors(out, counted, health);
  return out.take();
}

}  // namespace dsec::actors
