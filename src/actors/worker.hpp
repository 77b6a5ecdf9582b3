// What the actors of a worker share: the backend, the blocking pools, the store's writer, images,
// clocks, health. Made once by start_node() (or a test) and never changed; everything in it is
// thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "actors/event_log.hpp"
#include "actors/health.hpp"
#include "actors/images.hpp"
#include "actors/lease_table.hpp"
#include "actors/live_settings.hpp"
#include "actors/node_memory.hpp"
#include "actors/node_metrics.hpp"
#include "actors/record.hpp"
#include "actors/record_writer.hpp"
#include "backends/backend.hpp"
#include "base/config.hpp"
#include "base/worker_pool.hpp"

namespace dsec::actors {

struct worker {
  base::config config;  // as it was at the start
  std::shared_ptr<live_settings> live = std::make_shared<live_settings>();
  std::shared_ptr<backends::backend> backend;
  std::shared_ptr<base::executor> start_pool;       // backend::start
  std::shared_ptr<base::executor> kill_pool;        // instance::stop: never behind a slow start
  std::shared_ptr<base::executor> copy_pool;        // images, output, files
  std::shared_ptr<base::executor> background_pool;  // what nobody waits for: refill, spools, files
  std::shared_ptr<record_writer> writer;
  std::shared_ptr<image_catalogue> images;
  std::shared_ptr<health_board> health;
  std::shared_ptr<lease_table> leases;
  std::shared_ptr<node_metrics> metrics = std::make_shared<node_metrics>();
  std::shared_ptr<event_log> events = std::make_shared<event_log>();
  std::string epoch;  // of this process: ids made here do not come again in the next one
  std::function<std::chrono::system_clock::time_point()> wall;
  std::function<base::result<memory_reading>()> memory;  // on the copy pool
  /// What on_failure asks for, once per sandbox, on the kill pool: the record says that it has
  /// failed, and nothing of it is gone yet.
  std::function<void(const sandbox_record&, backends::instance&)> keep_failed;
};
using worker_ptr = std::shared_ptr<const worker>;

}  // namespace dsec::actors
