// Header values of any bytes: Host, Origin, Authorization, a target and subprotocols, one per line
// of the input.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/text.hpp"
#include "net/request_policy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::array<std::string_view, 5> line;
  for (auto& one : line) {
    const auto end = std::min(rest.find('\n'), rest.size());
    one = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  using namespace dsec::net;
  const local_door door{"127.0.0.1", 7070};
  // What a browser may send as the Host of another site's page never passes.
  if (host_allowed(line[0], door) && line[0].find("evil") != std::string_view::npos) std::abort();
  if (origin_allowed(line[1], line[0]) && line[1].size() != line[0].size() + 7) std::abort();
  const auto key = bearer_token(line[2]);
  if (key && (key->empty() || key->front() == ' ')) std::abort();
  const auto path = path_of(line[3]);
  if (path && (path->empty() || path->front() != '/')) std::abort();
  const auto chosen = chosen_subprotocol(line[4]);
  if (line[4].find(chosen) == std::string_view::npos) std::abort();
  if (const auto ticket = ticket_of(line[4]); ticket && (ticket->empty() || chosen.empty()))
    std::abort();
  // What the server at the other end of a link says when it refuses.
  if (const auto why = read_error_body(rest); why && why->code == dsec::base::errc::ok)
    std::abort();
  const std::string body = error_body(dsec::base::errc::invalid_argument, rest);
  if (body.empty() || dsec::base::shown(rest, 123).size() > 123) std::abort();
  return 0;
}
