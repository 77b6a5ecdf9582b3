#include "base/config.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <variant>
#include <vector>

#include "base/ids.hpp"
#include "base/log.hpp"
#include "base/nearest.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace dsec::base {

struct impossible_toml {};
constexpr void throw_unless(bool possible) {
  if (!possible) throw impossible_toml{};
}

}  // namespace dsec::base

// toml++ 3.3 takes some malformed texts ("[:]") for impossible: an assertion where NDEBUG is not
// defined, undefined behaviour where it is. Here they are errors as others are; so it must be
// compiled here, not be taken from its library.
#undef NDEBUG
#undef TOML_SHARED_LIB
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1
#define TOML_ASSERT(expression) ::dsec::base::throw_unless(static_cast<bool>(expression))
#include <toml++/toml.h>

namespace dsec::base {
namespace {

constexpr off_t max_config_bytes = 1 << 20;

using number_range = std::pair<double, double>;
using target = std::variant<std::string*, std::filesystem::path*, std::vector<std::string>*, bool*,
                            std::uint16_t*, std::uint32_t*, double*>;

enum class trait {
  none,
  reloadable,    // SIGHUP takes it over
  may_be_empty,  // a text
};

/// One key: where it stands in the file, where its value goes, its unit and its legal range.
struct key {
  std::string_view section;  // "" = top level
  std::string_view name;
  std::string_view unit;
  number_range range;
  target field;
  trait special = trait::none;
};

// The one table of all keys; reading, dumping and suggestions walk it.
std::vector<key> keys_of(config& c) {
  auto& g = c.gateway;
  auto& n = c.node;
  auto& s = c.sandbox;
  auto& i = c.import;
  auto& o = c.coordinator;
  return {
      {"", "state", "directory", {}, &c.state},
      {"", "log_level", "debug, info, warn or error", {}, &c.log_level, trait::reloadable},
      {"gateway", "bind", "address", {}, &g.bind},
      {"gateway", "port", "TCP port, 0 = any free one", {0, 65535}, &g.port},
      {"gateway",
       "max_connections",
       "connections",
       {1, 1'000'000},
       &g.max_connections,
       trait::reloadable},
      {"gateway",
       "default_deadline_ms",
       "ms",
       {100, 86'400'000},
       &g.default_deadline_ms,
       trait::reloadable},
      {"gateway", "lease_seconds", "s", {1, 86'400}, &g.lease_seconds, trait::reloadable},
      {"gateway", "tls_cert", "file, PEM; empty: no TLS", {}, &g.tls_cert, trait::may_be_empty},
      {"gateway", "tls_key", "file, PEM", {}, &g.tls_key, trait::may_be_empty},
      {"gateway", "tls_min_version", "\"1.2\" or \"1.3\"", {}, &g.tls_min_version},
      {"gateway", "allow_plaintext", "true or false", {}, &g.allow_plaintext},
      {"node", "name", "a-z, 0-9, '-', at most 40 characters", {}, &n.name},
      {"node", "instance", "a-z, 0-9, '-', at most 40 characters", {}, &n.instance},
      {"node", "uid_base", "host uid", {65'536, 4'000'000'000}, &n.uid_base},
      {"node", "aether_uid_base", "host uid", {65'536, 4'000'000'000}, &n.aether_uid_base},
      {"node", "max_sandboxes", "sandboxes", {1, 40'000}, &n.max_sandboxes},
      {"node", "slot_pool", "slots", {0, 1024}, &n.slot_pool},
      {"node", "memory_reserve_mb", "MiB", {0, 16'777'216}, &n.memory_reserve_mb},
      {"node", "memory_overcommit", "ratio", {0.1, 1000}, &n.memory_overcommit},
      {"node", "retention_seconds", "s", {0, 31'536'000}, &n.retention_seconds, trait::reloadable},
      {"sandbox", "cpu_millis", "1/1000 CPU", {10, 1'024'000}, &s.cpu_millis},
      {"sandbox", "memory_mb", "MiB", {16, 16'777'216}, &s.memory_mb},
      {"sandbox", "pids", "tasks", {16, 4'194'304}, &s.pids},
      {"sandbox", "nofile", "descriptors", {64, 1'048'576}, &s.nofile},
      {"sandbox", "spool_mb", "MiB", {1, 1024}, &s.spool_mb},
      {"import", "max_mb", "MiB", {1, 16'777'216}, &i.max_mb},
      {"import", "max_entries", "entries", {1, 8'000'000}, &i.max_entries},
      {"import", "max_ratio", "ratio", {1, 1'000'000}, &i.max_ratio},
      {"coordinator", "candidates", "workers", {1, 64}, &o.candidates},
      {"coordinator", "lost_after", "s", {1, 86'400}, &o.lost_after},
      {"peer", "coordinators", "list of ADDRESS:PORT", {}, &c.peer.coordinators},
      {"peer", "secret_file", "file", {}, &c.peer.secret_file},
  };
}

std::string qualified(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : std::string(section) + "." + std::string(name);
}

std::string nearest_key(const std::vector<key>& keys, std::string_view unknown) {
  std::vector<std::string> names;
  for (const auto& k : keys) {
    names.push_back(qualified(k.section, k.name));
    names.emplace_back(k.section);
  }
  return nearest(names, unknown);
}

struct reader {
  std::vector<key> keys;
  std::string_view origin;

  [[nodiscard]] std::string at(const toml::node& node) const {
    return std::string(origin) + ":" + std::to_string(node.source().begin.line) + ": ";
  }

  [[nodiscard]] result<void> assign_number(const key& k, const toml::node& node) const {
    const auto value = node.value<double>();
    const bool whole = !std::holds_alternative<double*>(k.field);
    const auto name = qualified(k.section, k.name);
    if (!value || (whole && !node.is_integer())) {
      return fail(errc::invalid_argument,
                  at(node) + name + " must be a number (" + std::string(k.unit) + ")");
    }
    if (!(*value >= k.range.first && *value <= k.range.second)) {
      std::ostringstream text;
      text << std::fixed;
      text.precision(whole ? 0 : 2);
      text << at(node) << name << " must be between " << k.range.first << " and " << k.range.second
           << " (" << k.unit << ")";
      return fail(errc::invalid_argument, text.str());
    }
    std::visit(
        [&](auto* field) {
          using field_type = std::remove_pointer_t<decltype(field)>;
          if constexpr (std::is_arithmetic_v<field_type>) *field = static_cast<field_type>(*value);
        },
        k.field);
    return {};
  }

  [[nodiscard]] result<void> assign_list(const key& k, const toml::node& node,
                                         std::vector<std::string>& to) const {
    to.clear();
    if (const auto* array = node.as_array()) {
      for (const auto& one : *array) {
        if (const auto value = one.value<std::string>(); one.is_string() && !value->empty())
          to.push_back(*value);
      }
      if (to.size() == array->size()) return {};
    }
    return fail(errc::invalid_argument, at(node) + qualified(k.section, k.name) +
                                            " must be a list of non-empty strings (" +
                                            std::string(k.unit) + ")");
  }

  [[nodiscard]] result<void> assign_switch(const key& k, const toml::node& node) const {
    if (!node.is_boolean()) {
      return fail(errc::invalid_argument,
                  at(node) + qualified(k.section, k.name) + " must be true or false");
    }
    *std::get<bool*>(k.field) = *node.value<bool>();
    return {};
  }

  [[nodiscard]] result<void> assign(const key& k, const toml::node& node) const {
    if (std::holds_alternative<bool*>(k.field)) return assign_switch(k, node);
    auto* text = std::get_if<std::string*>(&k.field);
    auto* path = std::get_if<std::filesystem::path*>(&k.field);
    if (const auto* list = std::get_if<std::vector<std::string>*>(&k.field))
      return assign_list(k, node, **list);
    if (text == nullptr && path == nullptr) return assign_number(k, node);
    const auto value = node.value<std::string>();
    const bool empty = value && value->empty() && k.special != trait::may_be_empty;
    if (!node.is_string() || !value || empty) {
      return fail(errc::invalid_argument, at(node) + qualified(k.section, k.name) +
                                              " must be a non-empty string (" +
                                              std::string(k.unit) + ")");
    }
    if (text != nullptr) **text = *value;
    if (path != nullptr) **path = *value;
    return {};
  }

  [[nodiscard]] result<void> table(std::string_view section, const toml::table& t) const {
    for (const auto& [name, node] : t) {
      const auto match = std::find_if(keys.begin(), keys.end(), [&](const key& k) {
        return k.section == section && k.name == name.str();
      });
      if (match != keys.end()) {
        DSEC_CHECK(assign(*match, node));
        continue;
      }
      const bool is_section =
          section.empty() && std::any_of(keys.begin(), keys.end(),
                                         [&](const key& k) { return k.section == name.str(); });
      if (is_section && node.is_table()) {
        DSEC_CHECK(this->table(name.str(), *node.as_table()));
        continue;
      }
      const auto unknown = qualified(section, name.str());
      const auto near = nearest_key(keys, unknown);
      return fail(errc::invalid_argument,
                  at(node) + "unknown key '" + unknown + "'; " +
                      (near.empty() ? "docs/config.md lists all keys"
                                    : "the nearest known one is '" + near + "'"));
    }
    return {};
  }
};

/// Whether nobody but this host can connect to an address. What is none is left to the listener.
bool stays_on_this_host(const std::string& address) {
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24U == 127;
  if (::inet_pton(AF_INET6, address.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return true;
}

result<void> check_gateway(const gateway_config& g, std::string_view origin) {
  const auto bad = [&](std::string text) {
    return fail(errc::invalid_argument, std::string(origin) + ": " + std::move(text));
  };
  if (g.tls_cert.empty() != g.tls_key.empty())
    return bad("gateway.tls_cert and gateway.tls_key go together: give both or none");
  if (g.tls_min_version != "1.2" && g.tls_min_version != "1.3")
    return bad("gateway.tls_min_version '" + g.tls_min_version + "' must be \"1.2\" or \"1.3\"");
  if (g.tls_cert.empty() && !g.allow_plaintext && !stays_on_this_host(g.bind)) {
    return bad("gateway.bind '" + g.bind +
               "' can be reached from other hosts, and without TLS keys and commands could be read "
               "on the way: set gateway.tls_cert and gateway.tls_key, or gateway.allow_plaintext = "
               "true where the network is trusted");
  }
  return {};
}

result<void> check_relations(const config& c, std::string_view origin) {
  const auto bad = [&](std::string text) {
    return fail(errc::invalid_argument, std::string(origin) + ": " + std::move(text));
  };
  DSEC_CHECK(check_gateway(c.gateway, origin));
  for (const auto& [name, value] :
       {std::pair{"node.name", c.node.name}, {"node.instance", c.node.instance}}) {
    if (!is_valid_id(value) || value.size() > 40) {
      return bad(std::string(name) + " '" + value +
                 "' must be a-z, 0-9 and '-', at most 40 characters");
    }
  }
  if (log::level ignored{}; !log::parse_level(c.log_level, ignored)) {
    return bad("log_level '" + c.log_level + "' must be debug, info, warn or error");
  }
  const std::uint64_t ranges_end =
      std::uint64_t{c.node.uid_base} + std::uint64_t{c.node.max_sandboxes} * 65'536;
  if (ranges_end > 4'294'967'294ULL) {
    return bad(
        "node.uid_base + node.max_sandboxes * 65536 is over the largest uid; lower one of them");
  }
  const std::uint64_t aether_end = std::uint64_t{c.node.aether_uid_base} + c.node.max_sandboxes;
  if (aether_end > c.node.uid_base && c.node.aether_uid_base < ranges_end) {
    return bad(
        "node.aether_uid_base overlaps the sandboxes' uids from node.uid_base on; move one of "
        "them");
  }
  return {};
}

}  // namespace

result<config> parse_config(std::string_view text, std::string_view origin) {
  if (!is_utf8(text))
    return fail(errc::invalid_argument, std::string(origin) + ": not UTF-8, as TOML must be");
  toml::table parsed;
  try {
    parsed = toml::parse(text, origin);
  } catch (const toml::parse_error& e) {
    return fail(errc::invalid_argument, std::string(origin) + ":" +
                                            std::to_string(e.source().begin.line) + ": " +
                                            std::string(e.description()));
  } catch (const impossible_toml&) {
    return fail(errc::invalid_argument, std::string(origin) + ": this is no TOML");
  }
  config c;
  const reader r{keys_of(c), origin};
  DSEC_CHECK(r.table("", parsed));
  DSEC_CHECK(check_relations(c, origin));
  return c;
}

result<config> load_config(const std::filesystem::path& file) {
  const auto name = "config file '" + file.string() + "'";
  // Not to wait for whoever writes into a pipe.
  const unique_fd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened) return fail_errno("cannot open " + name);
  struct stat info {};
  if (::fstat(opened.get(), &info) != 0) return fail_errno("cannot look at " + name);
  if (S_ISDIR(info.st_mode))
    return fail(errc::invalid_argument, name + " is a directory: name a file in it");
  if (!S_ISREG(info.st_mode))
    return fail(errc::invalid_argument, name + " is neither a file nor a link to one");
  if (info.st_size > max_config_bytes) {
    return fail(errc::too_large,
                name + " is over " + std::to_string(max_config_bytes) + " bytes: it is no config");
  }
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  const auto got = ::pread(opened.get(), text.data(), text.size(), 0);
  if (got < 0) return fail_errno("cannot read " + name);
  text.resize(static_cast<std::size_t>(got));
  return parse_config(text, file.string());
}

std::vector<config_change> changed_keys(const config& from, const config& to) {
  auto before = from;
  auto after = to;
  const auto old_keys = keys_of(before);
  const auto new_keys = keys_of(after);
  std::vector<config_change> out;
  for (std::size_t i = 0; i < old_keys.size(); ++i) {
    const auto& k = old_keys[i];
    const bool same = std::visit(
        [&](auto* value) { return *value == *std::get<decltype(value)>(new_keys[i].field); },
        k.field);
    if (!same) out.push_back({qualified(k.section, k.name), k.special == trait::reloadable});
  }
  return out;
}

config with_reloadable(config running, const config& wanted) {
  auto copy = wanted;
  const auto from = keys_of(copy);
  const auto to = keys_of(running);
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].special != trait::reloadable) continue;
    std::visit([&](auto* value) { *value = *std::get<decltype(value)>(from[i].field); },
               to[i].field);
  }
  return running;
}

std::string dump_config(const config& c) {
  auto copy = c;
  std::ostringstream out;
  std::string_view section;
  for (const auto& k : keys_of(copy)) {
    if (k.section != section) {
      section = k.section;
      out << "\n[" << section << "]\n";
    }
    std::visit(
        [&](auto* field) {
          using field_type = std::remove_pointer_t<decltype(field)>;
          if constexpr (std::is_arithmetic_v<field_type>) {
            out << toml::table{{k.name, *field}};
          } else if constexpr (std::is_same_v<field_type, std::vector<std::string>>) {
            toml::array list;
            for (const auto& one : *field) list.push_back(one);
            out << toml::table{{k.name, list}};
          } else if constexpr (std::is_same_v<field_type, std::filesystem::path>) {
            out << toml::table{{k.name, field->string()}};
          } else {
            out << toml::table{{k.name, *field}};
          }
        },
        k.field);
    out << "  # " << k.unit << (k.special == trait::reloadable ? "; reloadable" : "") << "\n";
  }
  return out.str();
}

}  // namespace dsec::base
