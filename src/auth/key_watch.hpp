// Keeps a gate's keys those of STATE/keys.db and of the file STATE/api-key: a thread of its own
// that owns the store and looks four times a second whether another process has written. While the
// store cannot be read the keys stay as they are, and the log says so once.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "auth/gate.hpp"
#include "auth/key_store.hpp"
#include "base/result.hpp"

namespace dsec::auth {

inline constexpr std::string_view local_id_prefix = "local-";

/// What the gate knows of the key in STATE/api-key, the local root's. Another key has another id.
known_key local_key(std::string_view key);

class key_watch {
 public:
  /// Called on the watch's thread with the ids of keys that are good no longer.
  using revoked = std::function<void(const std::vector<std::string>& key_ids)>;

  /// Opens the store and fills the gate.
  static base::result<std::unique_ptr<key_watch>> open(const base::paths& where, known_key local,
                                                       std::shared_ptr<gate> to);
  ~key_watch() { stop(); }

  /// From now on changes are taken over and told.
  void start(revoked tell);
  /// `tell` is not called any more after this.
  void stop();
  /// There is another local key: looks at once.
  void set_local(known_key local);

 private:
  key_watch(key_store store, known_key local, std::shared_ptr<gate> to);
  void run(const revoked& tell);
  base::result<std::vector<known_key>> all_keys(const known_key& local);
  base::result<void> look(const revoked& tell);

  key_store store_;  // of the thread, once that runs
  const std::shared_ptr<gate> gate_;
  bool unread_ = false;  // changes that could not be read yet
  bool failing_ = false;

  std::mutex mutex_;
  std::condition_variable wake_;
  known_key local_;
  bool local_changed_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dsec::auth
