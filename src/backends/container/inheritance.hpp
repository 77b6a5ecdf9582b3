// What the launcher of an earlier dsecd holds for this one: sandboxes by id, until each is either
// taken over by recover() or, all the rest, ended. Owned by the backend's sandbox_host;
// thread-safe.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/container/launcher.hpp"

namespace dsec::container {

class inheritance {
 public:
  void fill(std::vector<listed_sandbox> all);
  /// The launcher says that it has ended.
  void note_exit(const std::string& id, int status);

  struct standing {
    bool alive = false;
    int status = 0;  // of its aether, when it is not; -1: unknown
  };
  /// nullopt: the launcher does not know it, or it was taken over.
  std::optional<standing> find(const std::string& id);

  /// Hands a living one, descriptors and all, to `use`; if that succeeds it is not here any more.
  /// A launcher that is replaced meanwhile sees it either here or where `use` has put it. False: it
  /// is not here, or does not live.
  base::result<bool> take(const std::string& id,
                          const std::function<base::result<void>(listed_sandbox&)>& use);
  [[nodiscard]] bool empty();
  [[nodiscard]] bool any_alive();
  /// Everything that was not taken.
  std::vector<listed_sandbox> take_rest();

  /// Those that live, for a new launcher, and those that `others` answers at the same moment.
  std::vector<survivor> survivors(const std::function<std::vector<survivor>()>& others);

 private:
  std::mutex mutex_;
  std::map<std::string, listed_sandbox> held_;
};

}  // namespace dsec::container
