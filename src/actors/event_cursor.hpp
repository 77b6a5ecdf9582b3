// Where a reader of events goes on: for each worker the number of the last event that it has looked
// at, and of which of its processes. Clients hand it back as it is. Pure, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace dsec::actors {

class event_cursor {
 public:
  struct place {
    std::string epoch;  // of the worker's process: the next one counts anew
    std::uint64_t seq = 0;
  };

  /// "EDGE:EPOCH:SEQ,…"; errc::invalid_argument for what is not of this kind.
  static base::result<event_cursor> parse(std::string_view text);
  [[nodiscard]] std::string text() const;

  void set(const std::string& edge, place at) { places_.insert_or_assign(edge, std::move(at)); }
  /// As in `other`, if it says anything of that edge.
  void take(const std::string& edge, const event_cursor& other);
  /// 0 when the edge is not named, or was another process then.
  [[nodiscard]] std::uint64_t since(const std::string& edge, const std::string& epoch) const;
  [[nodiscard]] const std::map<std::string, place>& places() const { return places_; }

 private:
  std::map<std::string, place> places_;
};

}  // namespace dsec::actors
