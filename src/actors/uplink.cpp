#include "actors/uplink.hpp"

#include <algorithm>
#include <caf/send.hpp>

#include "actors/peer_frames.hpp"
#include "actors/runtime.hpp"
#include "base/log.hpp"
#include "base/secret.hpp"
#include "proto/text.hpp"

namespace dsec::actors {

using base::errc;
using base::fail;
using body = proto::PeerMessage::Body;

std::chrono::milliseconds back_off(unsigned n, double chance) {
  constexpr std::int64_t first = 50, most = 1000;
  const auto half = std::min(most, first << std::min(n, 10U)) / 2;
  // Between half of it and all: workers that lost one coordinator do not come back at once.
  return std::chrono::milliseconds(half +
                                   static_cast<std::int64_t>(static_cast<double>(half) * chance));
}

uplink_state::~uplink_state() {
  cut_channels();
  if (session) session->close("the link's actor ended");
}

void uplink_state::begin(uplink_args a, edge_actor local) {
  args = std::move(a);
  edge = std::move(local);
  args.leases->link_lost(args.coordinator.text(), now());  // of an uplink before this one
  dial();
}

void uplink_state::dial_in(std::chrono::milliseconds delay) {
  at = stage::apart;
  self->delayed_send(self, delay, dial_due{});
}

void uplink_state::dial() {
  if (at != stage::apart) return;
  args.leases->look(now());
  at = stage::dialing;
  const uplink_self me{self};
  const auto n = ++link;
  args.connector->connect(
      args.coordinator,
      [me, n](std::shared_ptr<net::ws_session> s, const net::connection_info&) {
        caf::anon_send(me, link_opened{n, std::move(s)});
        return net::session_handler{.message =
                                        [me, n](proto::frame f) {
                                          caf::anon_send(me, link_spoke{n, std::move(f)});
                                        },
                                    .malformed =
                                        [me, n](base::error e) {
                                          caf::anon_send(me, link_failed{n, std::move(e)});
                                        },
                                    .room = [me, n] { caf::anon_send(me, link_room{n}); },
                                    .closed = [me, n] { caf::anon_send(me, link_lost{n}); }};
      },
      [me, n](base::error e) {
        caf::anon_send(me, link_failed{n, std::move(e)});
      });
}

void uplink_state::on_opened(const link_opened& m) {
  if (m.link != link) return m.session->close("another link took its place");
  session = m.session;
  at = stage::hello;
  hello = {};
  hello.edge = args.env->config.node.name;
  hello.node_id = args.node_id;
  hello.nonce = proto::peer_nonce();
  hello.program = args.program;
  session->send(proto::hello_frame(hello));
  session->grant(read_ahead);
}

std::string uplink_state::subject() const {
  return std::string(health_board::coordinator_subject) + args.coordinator.text();
}

/// Said once, until something else is wrong or nothing is.
void uplink_state::trouble(const base::error& why, bool refused) {
  if (last_trouble != why.message) {
    base::log::warn(refused ? "coordinator_refuses" : "coordinator_unreachable",
                    {{"coordinator", args.coordinator.text()},
                     {"code", base::to_string(why.code)},
                     {"why", why.message}});
  }
  last_trouble = why.message;
  args.env->health->report(subject(), why.message);
}

void uplink_state::on_failed(const link_failed& m) {
  if (m.link != link) return;
  trouble(m.why, false);
  const bool refused = m.why.code == errc::unauthenticated || m.why.code == errc::permission_denied;
  on_lost(refused ? std::optional(after_refusal) : std::nullopt);
}

void uplink_state::on_lost(std::optional<std::chrono::milliseconds> pause) {
  if (at == stage::apart) return;
  if (at == stage::up)
    trouble(
        {errc::unavailable, "the link to coordinator " + args.coordinator.text() + " was lost", 0},
        false);
  ++link;
  cut_channels();
  args.leases->link_lost(args.coordinator.text(), now());
  if (session) std::exchange(session, nullptr)->close("the link is given up");
  const auto chance = std::uniform_real_distribution<>(0, 1)(dice);
  dial_in(pause ? *pause : back_off(tries++, chance));
}

void uplink_state::on_spoke(const link_spoke& m) {
  if (m.link != link) return;
  proto::view<proto::PeerMessage> view(m.frame);
  const auto ok =
      view.read([&](proto::PeerMessage::Reader message) { return on_message(message); });
  if (m.link != link) return;
  if (!ok) {
    trouble(ok.error(), false);
    return on_lost();
  }
  session->grant(1);
}

base::result<void> uplink_state::on_message(proto::PeerMessage::Reader message) {
  const auto b = message.getBody();
  if (b.isRefused()) return on_verdict(b);
  switch (at) {
    case stage::hello:
      return on_challenge(b);
    case stage::proven:
      return on_verdict(b);
    default:
      return serve(message);
  }
}

base::result<void> uplink_state::on_challenge(body::Reader b) {
  if (!b.isChallenge()) return fail(errc::protocol, "a coordinator that does not challenge");
  const auto nonce = proto::text_of(b.getChallenge().getNonce());
  DSEC_CHECK(proto::check_nonce(nonce));
  const auto& secret = *args.secret;
  if (!base::same_secret(proto::text_of(b.getChallenge().getProof()),
                         proto::peer_proof(secret, proto::peer_side::coordinator, hello, nonce))) {
    return fail(errc::unauthenticated,
                "coordinator " + args.coordinator.text() +
                    " does not know this worker's secret; give both the same file as "
                    "peer.secret_file");
  }
  session->trust();
  session->send(proof_frame(proto::peer_proof(secret, proto::peer_side::worker, hello, nonce)));
  at = stage::proven;
  return {};
}

base::result<void> uplink_state::on_verdict(body::Reader b) {
  if (b.isRefused()) {
    const auto code = proto::text_of(b.getRefused().getCode());
    trouble({errc::unavailable, code + ": " + proto::text_of(b.getRefused().getMessage()), 0},
            true);
    at = stage::dialing;  // said already
    const bool soon = code == base::to_string(errc::unavailable);
    on_lost(soon ? std::nullopt : std::optional(after_refusal));
    return {};
  }
  if (!b.isWelcome()) return fail(errc::protocol, "a coordinator that does not say welcome");
  at = stage::up;
  tries = 0;
  creates = std::make_shared<arrivals>(0);
  seen.reset();
  seen_at = now();
  looking = false;
  images_told.reset();
  last_trouble.clear();
  args.env->health->clear(subject());
  base::log::info("coordinator_connected", {{"coordinator", args.coordinator.text()}});
  // From now on clients can come back to their sandboxes.
  args.leases->link_stands(args.coordinator.text(), now());
  on_report_due();
  return {};
}

/// Every second, whatever the copy pool does: who does not report is taken for dead.
void uplink_state::on_report_due() {
  if (at != stage::up) return;
  self->delayed_send(self, report_period, report_due{link});
  args.leases->look(now());
  looking ? report() : look();
}

void uplink_state::look() {
  const auto submitted =
      args.env->copy_pool->submit([me = uplink_self{self}, n = link, env = args.env] {
        worker_seen m{n, {}, env->health->why_unhealthy(), {}};
        if (const auto memory = env->memory()) m.memory = *memory;
        if (const auto all = env->images->list()) {
          m.images.emplace();
          for (const auto& i : *all)
            m.images->push_back(std::string(fs::to_string(i.kind)) + " " + i.name + ":" + i.tag);
        }
        caf::anon_send(me, std::move(m));
      });
  looking = submitted.has_value();
  if (!looking) report();  // a pool without room; again in a second
}

void uplink_state::on_seen(const worker_seen& m) {
  if (m.link != link || at != stage::up) return;
  looking = false;
  seen = m;
  seen_at = now();
  report();
}

void uplink_state::report() {
  node_report said{{}, 0, seen ? seen->unhealthy : "it has not looked at its host yet", {}};
  if (now() - seen_at >= look_patience)
    said.unhealthy = "its copy pool has had no time to look at the host";
  if (seen && seen->images && seen->images != images_told) images_told = said.images = seen->images;
  self->request(edge, caf::infinite, get_load{creates})
      .then(
          [this, n = link, said = std::move(said),
           memory = seen ? seen->memory : std::nullopt](const counted_load& counted) mutable {
            if (n != link || at != stage::up) return;
            said.load = counted.load;
            said.creates = counted.creates;
            if (memory) said.load.now.memory = *memory;
            session->send(report_frame(said));
          },
          [](caf::error&) {});  // the edge is being started again
}

uplink_self::behavior_type uplink(uplink_self::stateful_pointer<uplink_state> self,
                                  uplink_args args, edge_actor local) {
  install_handlers(self, {.down = {}, .exit = [self] { self->state.cut_channels(); }});
  self->state.begin(std::move(args), std::move(local));
  return {
      [self](const edge_is& m) { self->state.edge = m.edge; },
      [self](const link_opened& m) { self->state.on_opened(m); },
      [self](const link_failed& m) { self->state.on_failed(m); },
      [self](const link_spoke& m) { self->state.on_spoke(m); },
      [self](const link_room& m) {
        if (m.link == self->state.link) self->state.on_room();
      },
      [self](const link_lost& m) {
        if (m.link == self->state.link) self->state.on_lost();
      },
      [self](dial_due) { self->state.dial(); },
      [self](const report_due& m) {
        if (m.link == self->state.link) self->state.on_report_due();
      },
      [self](const worker_seen& m) { self->state.on_seen(m); },
  };
}

}  // namespace dsec::actors
