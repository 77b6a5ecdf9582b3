// The launcher itself: what it holds and how it answers each request of guest/launch.hpp.
// Single-threaded: one request is done and answered before the next is looked at.
#pragma once

#include <cstdint>

#include "guest/launch.hpp"
#include "guest/launcher/create.hpp"
#include "guest/launcher/layers.hpp"
#include "guest/launcher/leavings.hpp"
#include "guest/launcher/sandboxes.hpp"
#include "guest/launcher/server.hpp"
#include "guest/launcher/slots.hpp"

namespace dsec::launcher {

/// Made by main at start, kept for good.
struct holdings {
  fd layers_ns;
  fd template_ns;
  bool detached_overlays = false;
  bool oom_scores = false;
};

class launcher {
 public:
  launcher(fd listening, holdings held);

  status load() { return layers_.load(); }
  /// Serves until a shutdown request is granted.
  status run();

 private:
  status watch(int descriptor, void* tag);
  void take_connection();
  void serve_connection();
  void aether_ended(sandbox_table::map::value_type& entry);

  void handle(request& r);
  void hello(const request& r);
  status attach_layer(const request& r);
  status detach_layer(const request& r);
  status make_slot(const request& r);
  status drop_slot(const request& r);
  void create(const request& r);
  status adopt(request& r);
  status release(const request& r);
  void list(const request& r);
  status shutdown();
  void reply(const request& r, status s, const char* step = nullptr);

  fd epoll_;
  server server_;
  holdings held_;
  layer_table layers_;
  slot_table slots_;
  sandbox_table sandboxes_;
  workshop shop_;
  leavings leavings_;
  bool running_ = true;
};

}  // namespace dsec::launcher
