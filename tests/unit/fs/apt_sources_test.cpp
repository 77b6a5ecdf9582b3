#include "fs/apt_sources.hpp"

#include <catch2/catch.hpp>

#include "fs/source.hpp"

namespace {

using dsec::base::errc;
using dsec::fs::codename_of;
using dsec::fs::network_options;
using dsec::fs::open_source;
using dsec::fs::parse_apt_targets;
using dsec::fs::sources_for;
using lines = std::vector<std::string>;

constexpr const char* listing =
    "http://mirror.test/debian/ bookworm bookworm main no\n"
    "http://mirror.test/debian/ bookworm bookworm contrib no\n"
    "http://mirror.test/debian/ bookworm-updates bookworm-updates main no\n"
    "http://mirror.test/security/ bookworm-security bookworm-security main yes\n"
    "http://vendor.test/repo/ bookworm bookworm stable no\n"
    "http://vendor.test/flat/ ./ flat no\n"
    "http://cloud.test/x/ cloud-bookworm $(CODENAME) main no\n";

}  // namespace

TEST_CASE("the machine's own sources of a suite are used, pockets included") {
  CHECK(sources_for(parse_apt_targets(listing), "bookworm", "bookworm") ==
        lines{"deb http://mirror.test/debian/ bookworm main contrib",
              "deb http://vendor.test/repo/ bookworm stable",
              "deb http://mirror.test/debian/ bookworm-updates main",
              "deb [trusted=yes] http://mirror.test/security/ bookworm-security main"});
}

TEST_CASE(
    "another suite comes from the same archive, without what third parties publish for this one") {
  const auto targets = parse_apt_targets(listing);
  CHECK(sources_for(targets, "trixie", "bookworm") ==
        lines{"deb http://mirror.test/debian/ trixie main",
              "deb http://mirror.test/debian/ trixie-updates main",
              "deb [trusted=yes] http://mirror.test/security/ trixie-security main"});
  CHECK(sources_for(targets, "sid", "bookworm") ==
        lines{"deb http://mirror.test/debian/ sid main"});
  CHECK(sources_for(targets, "trixie", "").empty());
  CHECK(sources_for({}, "bookworm", "bookworm").empty());
}

TEST_CASE("a release written as stable is known by its codename") {
  const auto targets = parse_apt_targets("http://mirror.test/debian/ stable bookworm main no\n");
  CHECK(sources_for(targets, "bookworm", "bookworm") ==
        lines{"deb http://mirror.test/debian/ bookworm main"});
}

TEST_CASE("only what the network needs is taken from apt's configuration") {
  CHECK(
      network_options("APT::Architecture \"amd64\";\nAcquire::http::Proxy \"http://p.test:3128\";\n"
                      "Acquire::IndexTargets::deb \"\";\nAcquire::Check-Date "
                      "\"false\";\nAcquire::Retries \"3\";\n") ==
      "Acquire::http::Proxy \"http://p.test:3128\";\nAcquire::Check-Date "
      "\"false\";\nAcquire::Retries \"3\";\n");
}

TEST_CASE("the codename is read from os-release") {
  CHECK(codename_of("ID=debian\nVERSION_CODENAME=bookworm\n") == "bookworm");
  CHECK(codename_of("VERSION_CODENAME=\"trixie\"") == "trixie");
  CHECK(codename_of("ID=debian\n").empty());
}

TEST_CASE("a Debian source names a suite and packages, and nothing that a tool would take for more",
          "[threat-17]") {
  for (const char* good :
       {"debian:bookworm", "debian:bookworm+python3,git", "debian:sid+g++,libstdc++6",
        "debian:trixie+python3=3.13.5-1+b1", "debian:bookworm-backports+git"}) {
    INFO(good);
    CHECK(open_source(good));
  }
  for (const char* bad :
       {"debian:", "debian:+git", "debian:book worm", "debian:../x", "debian:bookworm+",
        "debian:bookworm+a,,b", "debian:bookworm+git,", "debian:bookworm+--foo",
        "debian:bookworm+git-", "debian:bookworm+?essential", "debian:bookworm+/tmp/x.deb",
        "debian:bookworm+./x.deb", "debian:bookworm+~ptag", "debian:bookworm+git/sid",
        "debian:bookworm+git=", "debian:bookworm+git=$(id)", "debian:bookworm+git;id", "debian:-x",
        "debian:BOOKWORM"}) {
    INFO(bad);
    const auto source = open_source(bad);
    REQUIRE_FALSE(source);
    CHECK(source.error().code == errc::invalid_argument);
  }
}

TEST_CASE("equal Debian sources have equal fingerprints") {
  const auto print = [](const char* text) {
    return open_source(text).value()->fingerprint().value();
  };
  CHECK(print("debian:bookworm+git") == print("debian:bookworm+git"));
  CHECK(print("debian:bookworm+git") != print("debian:bookworm+git,make"));
  CHECK(print("debian:bookworm") != print("debian:trixie"));
}

TEST_CASE("a source that is no directory is refused by name") {
  CHECK(open_source("/nonexistent/x").error().code == errc::not_found);
  CHECK(open_source("oci:/nonexistent/x:tag").error().code == errc::not_found);
  CHECK(open_source("oci:").error().code == errc::invalid_argument);
  CHECK(open_source("docker-archive:/nonexistent/x").error().code == errc::not_found);
  CHECK(open_source("docker-archive:/usr").error().code == errc::invalid_argument);
  CHECK(open_source("docker-archive:").error().code == errc::not_found);
  for (const char* bad : {"docker://", "docker://a b", "docker://a;b", "docker://-\n"})
    CHECK(open_source(bad).error().code == errc::invalid_argument);
  CHECK_FALSE(open_source("docker://host/name:1").value()->pinned());
  CHECK(open_source("docker://host/name@sha256:ab").value()->pinned());
  CHECK(open_source("/etc/passwd").error().code == errc::invalid_argument);
  CHECK(open_source("").error().code == errc::invalid_argument);
  CHECK(open_source(std::string(10'000, 'x')).error().code == errc::invalid_argument);
}
