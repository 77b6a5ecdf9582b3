#include "base/config.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

using dsec::base::dump_config;
using dsec::base::errc;
using dsec::base::parse_config;

namespace {

std::string error_of(std::string_view text) {
  const auto parsed = parse_config(text, "test.toml");
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == errc::invalid_argument);
  return parsed.error().message;
}

}  // namespace

TEST_CASE("an empty file gives the defaults") {
  const auto c = parse_config("", "test.toml").value();
  CHECK(c.gateway.bind == "127.0.0.1");
  CHECK(c.gateway.port == 7070);
  CHECK(c.sandbox.memory_mb == 512);
}

TEST_CASE("values are taken and what is dumped reads back the same") {
  const auto c = parse_config(
                     "state = '/srv/d'\n[gateway]\nport = 0\n[node]\nname = "
                     "'edge-7'\nmemory_overcommit = 2.5\n",
                     "test.toml")
                     .value();
  CHECK(c.state == "/srv/d");
  CHECK(c.gateway.port == 0);
  CHECK(c.node.name == "edge-7");
  CHECK(c.node.memory_overcommit == 2.5);
  CHECK(dump_config(parse_config(dump_config(c), "dump").value()) == dump_config(c));
}

TEST_CASE("an unknown key is an error that names the nearest known one and the line") {
  CHECK(error_of("\n[gateway]\nprot = 1\n") ==
        "test.toml:3: unknown key 'gateway.prot'; the nearest known one is 'gateway.port'");
  CHECK(error_of("[sandbocks]\n") ==
        "test.toml:1: unknown key 'sandbocks'; the nearest known one is 'sandbox'");
  CHECK(error_of("zzzzzzzzzzzz = 1\n") ==
        "test.toml:1: unknown key 'zzzzzzzzzzzz'; docs/config.md lists all keys");
}

TEST_CASE("values out of range or of another type are refused with range and unit") {
  CHECK(error_of("[gateway]\nport = 70000\n").find("between 0 and 65535") != std::string::npos);
  CHECK(error_of("[sandbox]\nmemory_mb = 'much'\n").find("must be a number (MiB)") !=
        std::string::npos);
  CHECK(error_of("[sandbox]\nmemory_mb = 1.5\n").find("must be a number (MiB)") !=
        std::string::npos);
  CHECK(error_of("[node]\nname = 'No Good'\n").find("node.name") != std::string::npos);
  CHECK(error_of("[node]\nmemory_overcommit = nan\n").find("between") != std::string::npos);
  CHECK(error_of("log_level = 'loud'\n").find("log_level") != std::string::npos);
  CHECK(error_of("state = ''\n").find("state") != std::string::npos);
}

TEST_CASE("uid ranges that run over the end or into each other are refused") {
  CHECK(error_of("[node]\nuid_base = 4000000000\nmax_sandboxes = 10000\n").find("largest uid") !=
        std::string::npos);
  CHECK(error_of("[node]\naether_uid_base = 1000000500\n").find("overlaps") != std::string::npos);
}

TEST_CASE("without TLS only this host is listened to, unless that is said to be right") {
  const std::string open = "[gateway]\nbind = '0.0.0.0'\n";
  const auto refused = error_of(open);
  for (const char* named :
       {"gateway.bind '0.0.0.0'", "gateway.tls_cert", "gateway.allow_plaintext"})
    CHECK(refused.find(named) != std::string::npos);
  CHECK_FALSE(parse_config("[gateway]\nbind = '::'\n", "t"));
  CHECK_FALSE(parse_config("[gateway]\nbind = '10.0.0.1'\n", "t"));
  CHECK(parse_config("[gateway]\nbind = '127.9.9.9'\n", "t"));
  CHECK(parse_config("[gateway]\nbind = '::1'\n", "t"));
  CHECK(parse_config(open + "allow_plaintext = true\n", "t").value().gateway.allow_plaintext);
  CHECK(parse_config(open + "tls_cert = 'a'\ntls_key = 'b'\n", "t"));
}

TEST_CASE("TLS takes certificate and key, and a version that is safe") {
  CHECK(error_of("[gateway]\ntls_cert = 'a'\n").find("give both or none") != std::string::npos);
  CHECK(error_of("[gateway]\ntls_min_version = '1.1'\n").find("\"1.2\" or \"1.3\"") !=
        std::string::npos);
  CHECK(error_of("[gateway]\nallow_plaintext = 1\n").find("true or false") != std::string::npos);
}

TEST_CASE("a link that leaves this host needs TLS, and a worker a certificate for it") {
  const auto worker = [](const std::string& where, const std::string& rest = {}) {
    return "[peer]\ncoordinators = ['" + where + "']\n" + rest;
  };
  const std::string tls = "ca_file = 'a'\ncert_file = 'b'\nkey_file = 'c'\n";
  for (const char* far :
       {"10.0.0.1:7070", "[2001:db8::1]:7070", "[fe80::1%lo]:7070", "0.0.0.0:1"}) {
    INFO(far);
    const auto refused = error_of(worker(far));
    for (const char* named : {far, "not on loopback", "peer.ca_file", "peer.key_file"})
      CHECK(refused.find(named) != std::string::npos);
    CHECK(parse_config(worker(far, tls), "t"));
  }
  for (const char* near : {"127.0.0.1:7070", "127.3.2.1:1", "[::1]:7070", "localhost:7070"}) {
    INFO(near);
    CHECK(parse_config(worker(near), "t"));
    CHECK(parse_config(worker(near, tls), "t"));
  }
  CHECK(error_of(worker("127.0.0.1:1", "ca_file = 'a'\n")).find("go together") !=
        std::string::npos);
  CHECK(error_of(worker("127.0.0.1:1", "cert_file = 'b'\nkey_file = 'c'\n")).find("peer.ca_file") !=
        std::string::npos);
  CHECK(error_of(worker("127.0.0.1:1", "ca_file = 'a'\ncert_file = 'b'\n")).find("peer.key_file") !=
        std::string::npos);
}

TEST_CASE("a coordinator asks for certificates only where it shows its own") {
  const std::string asks = "[peer]\nca_file = 'a'\n";
  CHECK(error_of(asks).find("gateway.tls_cert") != std::string::npos);
  CHECK(parse_config("[gateway]\ntls_cert = 'a'\ntls_key = 'b'\n" + asks, "t"));
  CHECK(error_of("[peer]\ncert_file = 'a'\nkey_file = 'b'\n").find("is a worker's") !=
        std::string::npos);
}

TEST_CASE("files of [peer] are relative to the state directory") {
  dsec::base::config c;
  c.state = "/srv/dsec";
  CHECK(dsec::base::peer_file(c, "ca.pem") == "/srv/dsec/ca.pem");
  CHECK(dsec::base::peer_file(c, "/etc/ca.pem") == "/etc/ca.pem");
  CHECK(dsec::base::peer_file(c, "").empty());
}

TEST_CASE("what may change while dsecd runs is told from what needs a restart") {
  const dsec::base::config running;
  CHECK(dsec::base::changed_keys(running, running).empty());
  auto wanted = running;
  wanted.log_level = "debug";
  wanted.gateway.max_connections = 7;
  wanted.gateway.port = 1;
  wanted.gateway.tls_cert = "/a";
  wanted.node.memory_overcommit = 1.0;
  std::vector<std::pair<std::string, bool>> changes;
  for (const auto& c : dsec::base::changed_keys(running, wanted))
    changes.emplace_back(c.key, c.reloadable);
  CHECK(changes == std::vector<std::pair<std::string, bool>>{{"log_level", true},
                                                             {"gateway.port", false},
                                                             {"gateway.max_connections", true},
                                                             {"gateway.tls_cert", false},
                                                             {"node.memory_overcommit", false}});
  const auto taken = dsec::base::with_reloadable(running, wanted);
  CHECK(taken.log_level == "debug");
  CHECK(taken.gateway.max_connections == 7);
  CHECK(taken.gateway.port == running.gateway.port);
  CHECK(taken.gateway.tls_cert.empty());
}

TEST_CASE("text that is no TOML is refused with its line") {
  CHECK(error_of("a = 1\nb = = 2\n").find("test.toml:2:") == 0);
  CHECK(error_of("[:node]\n") == "test.toml: this is no TOML");
  // Letters of the ranges in which toml++ looks for white space.
  CHECK(error_of("\u00cb = 1\n").find("test.toml:1: ") == 0);
  CHECK(error_of("\u0416\u0417''z").find("test.toml:1: ") == 0);
  CHECK(parse_config("# \u00cb\nlog_level = \"info\"\n", "test.toml"));
}

namespace {

/// A file (or what the test makes at `path`) that is gone afterwards.
struct config_place {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("dsec-config-test-" + std::to_string(::getpid()));
  ~config_place() { std::filesystem::remove(path); }
};

dsec::base::error load_error(const std::filesystem::path& file) {
  const auto loaded = dsec::base::load_config(file);
  REQUIRE_FALSE(loaded);
  CHECK(loaded.error().message.find(file.string()) != std::string::npos);
  return loaded.error();
}

}  // namespace

TEST_CASE("a config file that is a directory is refused") {
  const auto why = load_error(std::filesystem::temp_directory_path());
  CHECK(why.code == errc::invalid_argument);
  CHECK(why.message.find("is a directory") != std::string::npos);
}

TEST_CASE("a config file that is not there, or leads nowhere, is not found") {
  const config_place place;
  CHECK(load_error(place.path).code == errc::not_found);
  std::filesystem::create_symlink("/nonexistent/dsecd.toml", place.path);
  CHECK(load_error(place.path).code == errc::not_found);
}

TEST_CASE("a config file that is a pipe is refused and not waited for") {
  const config_place place;
  REQUIRE(::mkfifo(place.path.c_str(), 0600) == 0);
  CHECK(load_error(place.path).code == errc::invalid_argument);
}

TEST_CASE("a config file that may not be read says so") {
  const config_place place;
  std::ofstream(place.path) << "";
  std::filesystem::permissions(place.path, std::filesystem::perms::none);
  const auto me = ::geteuid();
  constexpr uid_t nobody = 65534;
  if (me == 0) REQUIRE(::seteuid(nobody) == 0);  // root may read everything
  const auto loaded = dsec::base::load_config(place.path);
  REQUIRE(::seteuid(me) == 0);
  REQUIRE_FALSE(loaded);
  CHECK(loaded.error().code == errc::permission_denied);
}

TEST_CASE("a config file that is not UTF-8 is refused") {
  CHECK(error_of("log_level = '\xff\xfe'\n") == "test.toml: not UTF-8, as TOML must be");
}

TEST_CASE("a config file that is far too large is refused before it is read") {
  const config_place place;
  std::ofstream(place.path) << "# a sparse file\n";
  std::filesystem::resize_file(place.path, 1ULL << 40U);
  CHECK(load_error(place.path).code == errc::too_large);
}

TEST_CASE("the shipped configuration is the default one") {
  const auto shipped = dsec::base::load_config(DSEC_SOURCE_DIR "/config/dsecd.toml").value();
  CHECK(dump_config(shipped) == dump_config(dsec::base::config{}));
}

TEST_CASE("the shipped configurations of coordinator and worker belong together") {
  const auto coordinator =
      dsec::base::load_config(DSEC_SOURCE_DIR "/config/coordinator.toml").value();
  const auto worker = dsec::base::load_config(DSEC_SOURCE_DIR "/config/worker.toml").value();
  CHECK(worker.peer.coordinators ==
        std::vector<std::string>{coordinator.gateway.bind + ":" +
                                 std::to_string(coordinator.gateway.port)});
  CHECK(worker.peer.secret_file == coordinator.state / coordinator.peer.secret_file);
  CHECK(worker.state != coordinator.state);
  CHECK(worker.gateway.port != coordinator.gateway.port);
}

TEST_CASE("a list is of strings that are not empty, and is dumped as it was") {
  const auto c =
      dsec::base::parse_config("[peer]\ncoordinators = [\"127.0.0.1:1\", \"b:2\"]\n", "x").value();
  CHECK(c.peer.coordinators == std::vector<std::string>{"127.0.0.1:1", "b:2"});
  CHECK(dsec::base::parse_config(dump_config(c), "y").value().peer.coordinators ==
        c.peer.coordinators);
  for (const char* wrong : {"\"127.0.0.1:1\"", "[1]", "[\"\"]", "7"}) {
    INFO(wrong);
    const auto bad = dsec::base::parse_config(std::string("[peer]\ncoordinators = ") + wrong, "x");
    REQUIRE_FALSE(bad);
    CHECK(bad.error().message ==
          "x:2: peer.coordinators must be a list of non-empty strings (list of ADDRESS:PORT)");
  }
}

TEST_CASE("every key stands in the shipped configuration and in the documentation") {
  const auto text_of = [](const char* path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto shipped = text_of(DSEC_SOURCE_DIR "/config/dsecd.toml");
  const auto page = text_of(DSEC_SOURCE_DIR "/docs/config.md");
  std::istringstream all(dump_config(dsec::base::config{}));
  int keys = 0;
  for (std::string line; std::getline(all, line);) {
    const auto end = line.find(" = ");
    if (end == std::string::npos) continue;
    ++keys;
    const auto key = line.substr(0, end);
    INFO(key);
    CHECK(shipped.find("\n" + key + " = ") != std::string::npos);
    CHECK(page.find("| `" + key + "` |") != std::string::npos);
  }
  CHECK(keys > 15);
}
