#include "cli/peer.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/ids.hpp"
#include "fs/files.hpp"
#include "proto/peer.hpp"

namespace dsec::cli {
namespace {

using base::errc;
using base::fail;
using base::result;

result<std::string> make_token(const std::filesystem::path& file, std::size_t bits) {
  auto token = base::random_token(bits);
  DSEC_CHECK(fs::write_file_power(file, file.string() + ".tmp", token + "\n"));
  return token;
}

std::string without_line_end(std::string text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace

result<std::string> load_peer_secret(const base::config& c, bool make) {
  const auto file = c.state / c.peer.secret_file;  // an absolute one stays as it is
  struct stat st {};
  if (::stat(file.c_str(), &st) != 0) {
    if (make && errno == ENOENT) return make_token(file, 256);
    return base::fail_errno("cannot read peer.secret_file '" + file.string() +
                            "', which must be a copy of the coordinator's");
  }
  if ((st.st_mode & 077) != 0) {
    return fail(errc::permission_denied,
                "peer.secret_file '" + file.string() + "' can be read by others; chmod 600 it");
  }
  DSEC_TRY(auto text, fs::read_file(file, proto::longest_peer_secret));
  auto secret = without_line_end(std::move(text));
  if (secret.size() < proto::shortest_peer_secret) {
    return fail(errc::invalid_argument,
                "peer.secret_file '" + file.string() + "' holds less than " +
                    std::to_string(proto::shortest_peer_secret) +
                    " characters; remove the coordinator's to have it make one, and copy that");
  }
  return secret;
}

result<std::string> load_or_make_node_id(const base::paths& paths) {
  const auto file = paths.node_id();
  if (!std::filesystem::exists(file)) return make_token(file, 120);
  DSEC_TRY(auto text, fs::read_file(file, 256));
  auto id = without_line_end(std::move(text));
  if (base::is_valid_id(id)) return id;
  return fail(errc::corrupt, "'" + file.string() + "' holds no id; remove it to get a new one");
}

result<std::vector<net::peer_address>> coordinators_of(const base::config& c) {
  std::vector<net::peer_address> out;
  for (const auto& text : c.peer.coordinators) {
    DSEC_TRY(auto address, net::parse_peer_address(text));
    out.push_back(std::move(address));
  }
  if (out.empty()) {
    return fail(errc::invalid_argument,
                "a worker needs peer.coordinators, the addresses of its coordinators; see "
                "config/worker.toml");
  }
  return out;
}

result<void> check_coordinator(const base::config& c) {
  if (c.gateway.tls_cert.empty() || !c.peer.ca_file.empty()) return {};
  return fail(errc::invalid_argument,
              "a coordinator with gateway.tls_cert needs peer.ca_file, whose certificates its "
              "workers show: they come to the same port, and nobody gets in there without one");
}

}  // namespace dsec::cli
