#include "actors/cluster.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <utility>

#include "actors/runtime.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"

namespace dsec::actors {

using base::errc;

cluster_state::~cluster_state() {
  const auto down = caf::make_error(caf::sec::request_receiver_down);
  for (auto& f : findings) f.promise.deliver(down);
  for (auto& [token, c] : creations) {
    c.first.who.abandon();
    for (auto& f : c.followers) f.who.abandon();
  }
  for (auto& [token, g] : gatherings) g.who.abandon();
}

void cluster_state::begin(coordinator_ptr e) {
  env = std::move(e);
  book.emplace(env->known_edges, now());
  deadlines.want(self, now() + env->lost_after);
  say_who_is_there();
}

caf::result<reply> cluster_state::on_call(const call& c) {
  std::optional<caf::result<reply>> out;
  const auto readable = c.request.read([&](proto::Request::Reader request) {
    switch (request.getBody().which()) {
      case proto::Request::Body::PING:
        out = reply(pong_reply(c.id));
        break;
      case proto::Request::Body::CREATE_SANDBOX:
        out = on_create(c, request);
        break;
      case proto::Request::Body::STOP_SANDBOX:
        out = on_stop_with_key(c, request);
        break;
      case proto::Request::Body::LIST_SANDBOXES:
      case proto::Request::Body::LIST_IMAGES:
      case proto::Request::Body::LIST_NODES:
        out = gather(c, request.getBody().which());
        break;
      case proto::Request::Body::LIST_EVENTS:
        out = gather_events(c, request.getBody().getListEvents());
        break;
      default:
        out = reply(
            error_reply(c.id, {errc::unsupported, "a coordinator does not know this request", 0}));
    }
  });
  if (!out) return reply(error_reply(c.id, readable ? base::error{} : readable.error()));
  return std::move(*out);
}

bool cluster_state::is_lost(const std::string& edge) const {
  const auto gone = book->gone_since(edge);
  return gone && now() - *gone >= env->lost_after;
}

/// nullopt: its worker is gone and may come back.
std::optional<found_sandbox> cluster_state::found_now(const find_sandbox& m) const {
  const auto edge = base::edge_of(m.id);
  if (!edge) return found_sandbox{{}, edge.error()};
  const auto it = nodes.find(*edge);
  if (it != nodes.end()) return found_sandbox{it->second.node, {}};
  if (!book->knows(*edge)) {
    return found_sandbox{
        {},
        {errc::not_found, "sandbox '" + m.id + "' names edge '" + *edge + "', which is unknown",
         0}};
  }
  if (!is_lost(*edge)) return std::nullopt;
  return found_sandbox{{},
                       {errc::unavailable,
                        "edge '" + *edge + "', which has sandbox '" + m.id +
                            "', is unreachable; its sandboxes are there again when it is",
                        0}};
}

caf::result<found_sandbox> cluster_state::on_find(const find_sandbox& m) {
  if (auto found = found_now(m)) return std::move(*found);
  findings.push_back({self->make_response_promise<found_sandbox>(), m, now() + find_patience});
  deadlines.want(self, findings.back().until);
  return findings.back().promise;
}

void cluster_state::go_on_finding() {
  std::erase_if(findings, [this](finding& f) {
    auto found = found_now(f.what);
    if (!found && f.until > now()) return false;
    if (!found) {
      found = found_sandbox{{},
                            {errc::unavailable,
                             "edge '" + *base::edge_of(f.what.id) + "', which has sandbox '" +
                                 f.what.id + "', is unreachable; try again",
                             0}};
    }
    f.promise.deliver(std::move(*found));
    return true;
  });
}

node_welcome cluster_state::on_joins(const node_joins& m) {
  const auto there = nodes.find(m.edge);
  if (there != nodes.end()) {
    if (there->second.node_id != m.node_id) {
      return {base::error{errc::already_exists,
                          "another worker named '" + m.edge +
                              "' is connected; give this one another node.name",
                          0},
              {}};
    }
    // It was started again, or has given up a link that still looks alive from here.
    caf::anon_send(there->second.node, close_link{"the worker has opened another link"});
  }
  worker_node w;
  w.node_id = m.node_id;
  w.node = m.node;
  w.heard = now();
  deadlines.want(self, w.heard + report_patience);
  nodes.insert_or_assign(m.edge, std::move(w));
  self->monitor(m.node);
  if (book->joined(m.edge)) remember();
  say_who_is_there();
  go_on_finding();
  go_on_listing();
  return {std::nullopt, env->leases->held()};
}

void cluster_state::on_down(const caf::down_msg& m) {
  const auto it = std::find_if(nodes.begin(), nodes.end(),
                               [&](const auto& n) { return n.second.node.address() == m.source; });
  if (it == nodes.end()) return;  // another link took its place
  base::log::warn("worker_unreachable", {{"edge", it->first}});
  book->left(it->first, now());
  nodes.erase(it);
  deadlines.want(self, now() + env->lost_after);
  say_who_is_there();
}

void cluster_state::on_reported(const node_reported& m) {
  const auto it = nodes.find(m.edge);
  if (it == nodes.end() || it->second.node.id() != m.node) return;
  auto& w = it->second;
  const auto takes = [&] {
    return w.report && w.report->unhealthy.empty() && !w.report->load.draining;
  };
  const bool first = !w.report;
  const bool took = takes();
  if (m.report.images) images[m.edge] = {m.report.images->begin(), m.report.images->end()};
  w.report = m.report;
  w.heard = now();
  w.silent = false;
  if (first) say_who_is_there();
  // Creates may have waited for it: for what it knows, or for somebody who takes them.
  if (first || (!took && takes())) look_at_all();
}

/// Pings are answered by its I/O threads; what its actors were asked they may never answer. A link
/// that is cut answers all of it. Looked at twice: it may be us who did not run meanwhile.
void cluster_state::cut_silent() {
  for (auto& [edge, w] : nodes) {
    const auto late = w.heard + report_patience;
    if (late > now()) {
      deadlines.want(self, late);
    } else if (!std::exchange(w.silent, true)) {
      deadlines.want(self, now() + pause_between_rounds);
    } else {
      caf::anon_send(w.node, close_link{"the worker does not report"});
    }
  }
}

void cluster_state::on_lease(const lease_changed& m) {
  for (const auto& [edge, w] : nodes) caf::anon_send(w.node, m);
}

void cluster_state::on_abandoned(const creates_abandoned& m) {
  drop_abandoned(m);
  for (const auto& [edge, w] : nodes) caf::anon_send(w.node, m);
}

/// One at a time, so that the last one written is the last one.
void cluster_state::remember() {
  if (saving) {
    unsaved = true;
    return;
  }
  auto job = [me = cluster_self{self}, env = env, text = book->text()] {
    if (auto ok = env->save_edges(text); !ok)
      base::log::warn("edges_not_saved", {{"why", ok.error().to_string()}});
    caf::anon_send(me, edges_saved{});
  };
  const auto ok = env->copy_pool->submit(std::move(job));
  saving = ok.has_value();
  if (!ok) base::log::warn("edges_not_saved", {{"why", ok.error().to_string()}});
}

void cluster_state::on_saved() {
  saving = false;
  if (std::exchange(unsaved, false)) remember();
}

void cluster_state::say_who_is_there() {
  std::map<std::string, std::string> states;
  for (const auto& edge : book->names()) {
    const auto it = nodes.find(edge);
    states[edge] = it == nodes.end() ? "unreachable" : it->second.report ? "connected" : "joining";
  }
  env->health->set_edges(std::move(states));
}

void cluster_state::on_alarm(const alarm_rang& rang) {
  if (!deadlines.is_current(rang)) return;
  if (book->forget_old(now())) {
    std::erase_if(images, [this](const auto& i) { return !book->knows(i.first); });
    remember();
    say_who_is_there();
  }
  cut_silent();
  go_on_finding();
  go_on_listing();
  go_on_creating();
  for (const auto& f : findings) deadlines.want(self, f.until);
}

cluster_self::behavior_type cluster(cluster_self::stateful_pointer<cluster_state> self,
                                    coordinator_ptr env) {
  install_handlers(
      self, {.down = [self](const caf::down_msg& m) { self->state.on_down(m); }, .exit = {}});
  self->state.begin(std::move(env));
  return {
      [self](const call& c) { return self->state.on_call(c); },
      [self](const find_sandbox& m) { return self->state.on_find(m); },
      [self](const creates_abandoned& m) { self->state.on_abandoned(m); },
      [self](const node_joins& m) { return self->state.on_joins(m); },
      [self](const node_reported& m) { self->state.on_reported(m); },
      [self](const lease_changed& m) { self->state.on_lease(m); },
      [self](const alarm_rang& m) { self->state.on_alarm(m); },
      [self](const lists_merged& m) { self->state.on_listed(m.token, {}, &m.merged); },
      [self](edges_saved) { self->state.on_saved(); },
  };
}

}  // namespace dsec::actors
