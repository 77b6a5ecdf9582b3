// See request_policy.hpp.
#include "net/request_policy.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace dsec::net {
namespace {

struct authority {
  std::string host;  // lower case, IPv6 literals without brackets
  std::optional<std::uint16_t> port;
};

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return lower(x) == lower(y); });
}

// host[:port] of RFC 3986; anything else, user information included, is nullopt.
std::optional<authority> parse_authority(std::string_view text) {
  authority out;
  std::size_t end = 0;
  if (text.starts_with('[')) {
    end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    out.host = lowered(text.substr(1, end - 1));
    ++end;
  } else {
    end = std::min(text.find(':'), text.size());
    out.host = lowered(text.substr(0, end));
  }
  if (out.host.empty() || out.host.find_first_of("@/?# \t") != std::string::npos)
    return std::nullopt;
  if (end == text.size()) return out;
  const std::string_view digits = text.substr(end + 1);
  std::uint16_t port = 0;
  const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (text[end] != ':' || problem != std::errc{} || stop != digits.data() + digits.size()) {
    return std::nullopt;
  }
  out.port = port;
  return out;
}

// localhost, ::1 and the literals of 127.0.0.0/8 (four decimal parts: a name like 127.evil.org has
// none).
bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  if (!host.starts_with("127.")) return false;
  return std::count(host.begin(), host.end(), '.') == 3 &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

/// The first of a comma-separated list that `wanted` takes; empty when there is none.
template <class Predicate>
std::string_view first_of(std::string_view list, Predicate wanted) {
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    auto item = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    item.remove_prefix(std::min(item.find_first_not_of(" \t"), item.size()));
    item = item.substr(0, item.find_last_not_of(" \t") + 1);
    if (wanted(item)) return item;
  }
  return {};
}

constexpr std::string_view subprotocol = "dsec", ticket_prefix = "dsec.ticket.";

bool is_ticket(std::string_view offered) {
  return offered.size() > ticket_prefix.size() && offered.starts_with(ticket_prefix);
}

/// The address as a client writes it: a socket for both families has IPv4 clients come in on mapped
/// addresses (ipv6(7)).
std::string_view unmapped(std::string_view address) {
  constexpr std::string_view prefix = "::ffff:";
  const bool mapped = address.starts_with(prefix) && address.find('.') != std::string_view::npos;
  return mapped ? address.substr(prefix.size()) : address;
}

}  // namespace

bool host_allowed(std::string_view host, const local_door& door) {
  const std::uint16_t usual_port = door.secure ? 443 : 80;
  const auto parsed = parse_authority(host);
  if (!parsed || parsed->port.value_or(usual_port) != door.port) return false;
  return is_loopback(parsed->host) || parsed->host == lowered(unmapped(door.address)) ||
         (door.certified && door.certified(parsed->host));
}

bool origin_allowed(std::string_view origin, std::string_view host, bool secure) {
  const std::string_view scheme = secure ? "https://" : "http://";
  if (origin.size() < scheme.size() ||
      !equal_ignoring_case(origin.substr(0, scheme.size()), scheme)) {
    return false;
  }
  return equal_ignoring_case(origin.substr(scheme.size()), host);
}

std::optional<std::string_view> bearer_token(std::string_view authorization) {
  constexpr std::string_view scheme = "Bearer ";
  if (authorization.size() <= scheme.size() ||
      !equal_ignoring_case(authorization.substr(0, scheme.size()), scheme)) {
    return std::nullopt;
  }
  const std::string_view key = authorization.substr(scheme.size());
  const auto first = key.find_first_not_of(' ');
  if (first == std::string_view::npos) return std::nullopt;
  return key.substr(first);
}

std::optional<std::string_view> ticket_of(std::string_view offered) {
  const auto found = first_of(offered, is_ticket);
  if (found.empty()) return std::nullopt;
  return found.substr(ticket_prefix.size());
}

std::string_view chosen_subprotocol(std::string_view offered) {
  const auto own = first_of(offered, [](std::string_view item) { return item == subprotocol; });
  return own.empty() ? first_of(offered, is_ticket) : own;
}

std::string ticket_body(std::string_view ticket, std::chrono::seconds lifetime) {
  const nlohmann::json body = {{"ticket", ticket}, {"expiresInSeconds", lifetime.count()}};
  return body.dump() + "\n";
}

std::string error_body(base::errc code, std::string_view message) {
  const nlohmann::json body = {{"error",
                                {{"code", base::to_string(code)},
                                 {"message", message},
                                 {"retryable", base::retryable(code)}}}};
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<base::error> read_error_body(std::string_view body) {
  constexpr std::size_t longest_body = 8U << 10U, longest_message = 1U << 10U;
  if (body.size() > longest_body) return std::nullopt;
  const auto parsed = nlohmann::json::parse(body, nullptr, false);
  const auto* error = parsed.is_object() && parsed.contains("error") ? &parsed["error"] : nullptr;
  const auto text = [&](const char* key) -> const std::string* {
    if (error == nullptr || !error->is_object() || !error->contains(key)) return nullptr;
    return (*error)[key].get_ptr<const std::string*>();
  };
  const auto* code = text("code");
  const auto* message = text("message");
  const auto known = code != nullptr ? base::parse_errc(*code) : std::nullopt;
  if (!known || *known == base::errc::ok || message == nullptr) return std::nullopt;
  return base::error{*known, base::shown(*message, longest_message), 0};
}

std::optional<std::string_view> path_of(std::string_view target) {
  if (!target.starts_with('/')) return std::nullopt;
  return target.substr(0, target.find_first_of("?#"));
}

}  // namespace dsec::net
