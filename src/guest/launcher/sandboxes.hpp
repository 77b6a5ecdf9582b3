// The sandboxes that the launcher holds for dsecd: its ends of their channels and the pidfds of
// their aethers, until dsecd releases them. The launcher's thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "guest/launcher/fd.hpp"
#include "guest/launcher/layers.hpp"
#include "guest/launcher/status.hpp"

namespace dsec::launcher {

struct sandbox {
  std::uint32_t slot = 0;
  std::vector<layer*> layers;  // one use of each is ours
  fd channel;                  // dsecd's end
  fd pidfd;
  long pid = 0;  // 0: made by a launcher before this one, so not our child
  bool exited = false;
  std::int32_t status = 0;  // as of wait(2); -1 when unknown
};

class sandbox_table {
 public:
  using map = std::map<std::string, sandbox, std::less<>>;

  /// `epoll` outlives the table; it gets every pidfd, with the entry's address as its data.
  explicit sandbox_table(int epoll) : epoll_(epoll) {}

  sandbox* find(std::string_view id);
  [[nodiscard]] bool uses_slot(std::uint32_t number) const;
  [[nodiscard]] std::uint32_t live() const;

  /// Moves its descriptors out of the way, takes it in and watches it. The id must be new.
  status add(std::string_view id, sandbox&& s, map::value_type*& entry);
  /// Looks whether its aether has ended, after the pidfd said so.
  void reap(sandbox& s) const;
  /// Forgets it and gives its layers back. ENOENT, or EBUSY while its aether lives.
  status release(std::string_view id);
  /// Forgets it, whatever state it is in.
  void erase(std::string_view id);
  [[nodiscard]] const map& all() const { return sandboxes_; }

 private:
  void unwatch(const sandbox& s) const;
  void forget(map::iterator it);

  int epoll_;
  map sandboxes_;
  std::multiset<std::uint32_t> slots_;  // theirs
};

}  // namespace dsec::launcher
