// Which clients are there. A lease is a name that a client gives on all its connections; it is held
// while one of them is open, and ends some time after the last. What is bound to it asks here when
// that is. Thread-safe: connections come and go on any thread, and outlive edges, so this belongs
// to the node. Nothing here is stored: after a start of dsecd every lease counts anew, from the
// moment when clients can connect.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dsec::actors {

struct lease {
  std::string id;        // empty: none
  std::uint32_t ms = 0;  // from the last connection to the end of what is bound to it

  explicit operator bool() const { return !id.empty(); }
  bool operator==(const lease&) const = default;
};

class lease_table : public std::enable_shared_from_this<lease_table> {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  /// A lease that nothing was ever bound to is remembered so long after its last connection,
  /// however long it is: what a client had under way may still be bound to it.
  static constexpr std::chrono::seconds unbound_for{60};

  /// One connection took a lease first, or let it go last. Called on any thread, in order, under a
  /// lock: hand over.
  using watcher = std::function<void(const std::string& principal, const lease& l, bool held)>;

  explicit lease_table(std::function<time_point()> now, watcher watch = {});

  /// One open connection.
  class holder {
   public:
    holder() = default;
    ~holder() { let_go(); }
    holder(holder&& other) noexcept = default;
    holder& operator=(holder&& other) noexcept;
    void let_go();

   private:
    friend class lease_table;
    using key = std::pair<std::string, std::string>;
    holder(std::shared_ptr<lease_table> table, key what)
        : table_(std::move(table)), what_(std::move(what)) {}

    std::shared_ptr<lease_table> table_;
    key what_;
  };
  [[nodiscard]] holder hold(const std::string& principal, const lease& l);

  /// Clients can connect from now on.
  void open();
  /// When the lease ends; nullopt while somebody holds it, and as long as nobody could. One that
  /// nobody has held counts from open().
  std::optional<time_point> ends(const std::string& principal, const lease& l);
  /// All that are held, each with the longest time that anybody has named.
  [[nodiscard]] std::vector<std::pair<std::string, lease>> held() const;
  /// Leases that are held, or were not long ago.
  [[nodiscard]] std::size_t size() const;

 private:
  using key = holder::key;  // principal and id
  struct entry {
    unsigned holders = 0;
    std::optional<time_point> released;    // by the last holder; none: nobody has held it
    std::chrono::milliseconds longest{0};  // of all times that anybody asked with
    bool bound = false;                    // somebody has asked when it ends
    bool due = false;                      // stands in due_

    [[nodiscard]] std::chrono::milliseconds remembered() const {
      return bound ? longest : std::min<std::chrono::milliseconds>(longest, unbound_for);
    }
  };

  entry& known(const key& what, std::uint32_t ms);
  void release(const key& what);
  [[nodiscard]] std::optional<time_point> counts_from(const entry& e) const;
  void forget_later(const key& what, entry& e);
  /// What ended so long ago that it makes no difference is not kept.
  void forget_old(time_point now);

  void tell(const key& what, const entry& e, bool held) const;

  const std::function<time_point()> now_;
  const watcher watch_;
  mutable std::mutex mutex_;
  std::optional<time_point> opened_;
  std::map<key, entry> known_;
  std::multimap<time_point, key> due_;  // when to look whether it can be forgotten
};

}  // namespace dsec::actors
