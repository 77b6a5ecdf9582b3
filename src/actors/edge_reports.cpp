// What an edge tells about itself and what is on it. Lists are made on the copy pool.
#include <algorithm>
#include <utility>

#include "actors/edge.hpp"

namespace dsec::actors {

caf::result<reply> edge_state::list_sandboxes(const call& c) {
  std::vector<ledger_ptr> mine;
  for (const auto& [id, e] : table->sandboxes) {
    if (e.book->status.record()->owner == c.from->principal) mine.push_back(e.book);
  }
  waiter w{self->make_response_promise<reply>(), c.id, c.deadline};
  auto promise = w.promise;
  desk.hand_out(
      edge_self{self}, *env->copy_pool, std::move(w), [mine = std::move(mine), id = c.id] {
        std::vector<sandbox_view> views;
        for (const auto& book : mine)
          views.push_back({book->status.record(), book->status.commands()});
        // Living ones first, then the newest: what does not fit in a message is old and dead.
        std::sort(views.begin(), views.end(), [](const sandbox_view& a, const sandbox_view& b) {
          const auto rank = [](const sandbox_view& v) {
            return std::pair(v.record->ended_unix_ms != 0,
                             -static_cast<std::int64_t>(v.record->created_unix_ms));
          };
          return rank(a) < rank(b);
        });
        return sandboxes_reply(id, views);
      });
  return promise;
}

caf::result<reply> edge_state::list_images(const call& c) {
  waiter w{self->make_response_promise<reply>(), c.id, c.deadline};
  auto promise = w.promise;
  desk.hand_out(edge_self{self}, *env->copy_pool, std::move(w), [env = env, id = c.id] {
    const auto images = env->images->list();
    return images ? images_reply(id, *images) : error_reply(id, images.error());
  });
  return promise;
}

caf::result<reply> edge_state::on_list_events(const call& c, proto::ListEvents::Reader request) {
  auto asked = events.read(c, request, now());
  if (!asked) return reply(error_reply(c.id, asked.error()));
  if (auto answer = events.answer_now(*asked, c.id, now())) return reply(std::move(*answer));
  waiter w{self->make_response_promise<reply>(), c.id, c.deadline};
  auto promise = w.promise;
  deadlines.want(self, asked->until);
  events.wait(std::move(*asked), std::move(w));
  return promise;
}

caf::result<reply> edge_state::list_nodes(const call& c) {
  waiter w{self->make_response_promise<reply>(), c.id, c.deadline};
  auto promise = w.promise;
  node_view view{env->config.node.name, live, queue.size(), limits_bytes, {}, 0, {}};
  desk.hand_out(edge_self{self}, *env->copy_pool, std::move(w),
                [env = env, view = std::move(view), id = c.id]() mutable {
                  const auto memory = env->memory();
                  if (!memory) return error_reply(id, memory.error());
                  view.memory = *memory;
                  view.slots_ready = env->backend->stats().slots_ready;
                  view.unhealthy = env->health->reasons();
                  return node_reply(id, view);
                });
  return promise;
}

}  // namespace dsec::actors
