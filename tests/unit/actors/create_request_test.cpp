#include "actors/create_request.hpp"

#include <capnp/message.h>

#include <catch2/catch.hpp>
#include <functional>

using namespace dsec::actors;
namespace base = dsec::base;
namespace proto = dsec::proto;

namespace {

using fill = std::function<void(proto::CreateSandbox::Builder)>;

base::result<create_request> parse(const fill& f = {}) {
  capnp::MallocMessageBuilder message;
  auto c = message.initRoot<proto::CreateSandbox>();
  c.setImage("debian:12");
  if (f) f(c);
  return parse_create(c.asReader(), base::sandbox_config{}, "container");
}

fill rules(std::vector<std::pair<std::string, bool>> list) {
  return [list](proto::CreateSandbox::Builder c) {
    auto out = c.initNetworkRules(static_cast<unsigned>(list.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      out[i].setService(list[i].first.c_str());
      out[i].setAllow(list[i].second);
    }
  };
}

fill variables(std::vector<std::pair<std::string, std::string>> list) {
  return [list](proto::CreateSandbox::Builder c) {
    auto out = c.initEnv(static_cast<unsigned>(list.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      out[i].setName(list[i].first.c_str());
      out[i].setValue(list[i].second.c_str());
    }
  };
}

base::errc code(const fill& f) {
  const auto r = parse(f);
  return r ? base::errc::ok : r.error().code;
}

}  // namespace

TEST_CASE("what a create does not name comes from the configuration") {
  const auto r = parse();
  REQUIRE(r);
  CHECK(r->spec.backend == "container");
  CHECK(r->spec.limits.cpu_millis == 1000);
  CHECK(r->spec.limits.memory_bytes == 512ULL << 20U);
  CHECK(r->spec.limits.pids == 4096);
  CHECK(r->spec.limits.nofile == 65'536);
}

TEST_CASE("limits below what can work are refused, naming the field") {
  const auto r = parse([](auto c) { c.setMemoryMb(4); });
  REQUIRE_FALSE(r);
  CHECK(r.error().code == base::errc::invalid_argument);
  CHECK(r.error().message == "memory_mb must be 0 (default) or at least 16, not 4");
  CHECK(code([](auto c) { c.setCpuMillis(1); }) == base::errc::invalid_argument);
  CHECK(code([](auto c) { c.setPidsLimit(1); }) == base::errc::invalid_argument);
}

TEST_CASE("a backend that this worker does not have is unsupported") {
  CHECK(code([](auto c) { c.setBackend("microvm"); }) == base::errc::unsupported);
  CHECK(code([](auto c) { c.setBackend("container"); }) == base::errc::ok);
}

TEST_CASE("a create without an image is refused") {
  CHECK(code([](auto c) { c.setImage(""); }) == base::errc::invalid_argument);
}

TEST_CASE("an allowed network service comes back as a warning, a denied one does not") {
  const auto r = parse(rules({{"npm", false}, {"pypi", true}}));
  REQUIRE(r);
  REQUIRE(r->spec.warnings.size() == 1);
  CHECK(r->spec.warnings[0].find("'pypi'") != std::string::npos);
}

TEST_CASE("unknown and contradictory network rules are refused") {
  CHECK(code(rules({{"ftp", true}})) == base::errc::invalid_argument);
  CHECK(code(rules({{"ftp", false}})) == base::errc::invalid_argument);
  CHECK(code(rules({{"pypi", true}, {"pypi", false}})) == base::errc::invalid_argument);
  const auto twice = parse(rules({{"pypi", true}, {"pypi", true}}));
  REQUIRE(twice);
  CHECK(twice->spec.warnings.size() == 1);
}

TEST_CASE("a snapshot on failure is taken down and comes back as a warning") {
  const auto r = parse([](auto c) { c.setOnFailure(proto::OnFailure::SNAPSHOT); });
  REQUIRE(r);
  CHECK(r->spec.on_failure == on_failure::snapshot);
  REQUIRE(r->spec.warnings.size() == 1);
  CHECK(r->spec.warnings[0].find("on_failure 'snapshot'") != std::string::npos);
  CHECK(parse()->spec.on_failure == on_failure::none);
  CHECK(parse()->spec.warnings.empty());
  CHECK(parse()->body_hash != r->body_hash);
}

TEST_CASE("what is to be done on failure must be known") {
  const auto r = parse([](auto c) { c.setOnFailure(static_cast<proto::OnFailure>(7)); });
  REQUIRE_FALSE(r);
  CHECK(r.error().code == base::errc::invalid_argument);
  CHECK(r.error().message == "on_failure: there are none and snapshot, not number 7");
}

TEST_CASE("names that could not be used inside are refused") {
  CHECK(code(variables({{"A=B", "c"}})) == base::errc::invalid_argument);
  CHECK(code(variables({{"", "c"}})) == base::errc::invalid_argument);
  CHECK(code([](auto c) { c.setWorkdir("relative"); }) == base::errc::invalid_argument);
  CHECK(code([](auto c) { c.setHostname("Not_A_Host"); }) == base::errc::invalid_argument);
  CHECK(code([](auto c) { c.setInitUser(capnp::Text::Reader("a\0b", 3)); }) ==
        base::errc::invalid_argument);
  CHECK(code([](auto c) { c.initToolkits(17); }) == base::errc::invalid_argument);
  CHECK(code([](auto c) {
          auto l = c.initLabels(1);
          l[0].setName("k");
          l[0].setValue(std::string(5000, 'v').c_str());
        }) == base::errc::invalid_argument);
}

TEST_CASE("the hash follows the meaning of a request, not its encoding") {
  const auto plain = parse();
  // The same text set twice leaves a hole in the message.
  const auto rewritten = parse([](auto c) {
    c.setWorkdir("/something/else/that/is/long");
    c.setWorkdir("");
    c.setImage("debian:12");
  });
  const auto other = parse([](auto c) { c.setCpuMillis(500); });
  CHECK(plain->body_hash.size() == 64);
  CHECK(plain->body_hash == parse()->body_hash);
  CHECK(plain->body_hash != other->body_hash);
  CHECK(rewritten->body_hash.size() == 64);
}

TEST_CASE("the request's environment, user and directory stand over the image's") {
  resolved_images images;
  images.layers = {{"aa", "/b/aa"}};
  images.config.env = {{"PATH", "/image/bin"}, {"A", "image"}};
  images.config.user = "app";
  images.config.cwd = "/srv";

  const auto from_image = complete(*parse(), images);
  CHECK(from_image.user == "app");
  CHECK(from_image.workdir == "/srv");
  CHECK(from_image.layers.size() == 1);

  auto request = parse([](auto c) {
    variables({{"A", "mine"}, {"B", "new"}})(c);
    c.setInitUser("root");
    c.setWorkdir("/tmp");
  });
  const auto merged = complete(*request, images);
  CHECK(merged.env == std::vector<std::string>{"PATH=/image/bin", "A=mine", "B=new"});
  CHECK(merged.user == "root");
  CHECK(merged.workdir == "/tmp");

  const auto bare = complete(*parse(), {});
  CHECK(bare.user == "root");
  CHECK(bare.workdir == "/");
}

TEST_CASE("the environment of a create is bounded in all") {
  const std::string quarter(64 * 1024, 'x');
  CHECK(code(variables({{"A", quarter}, {"B", quarter}, {"C", quarter}})) == base::errc::ok);
  const auto r = parse(variables({{"A", quarter}, {"B", quarter}, {"C", quarter}, {"D", quarter}}));
  REQUIRE_FALSE(r);
  CHECK(r.error().code == base::errc::invalid_argument);
  CHECK(r.error().message.find("env") != std::string::npos);
}

TEST_CASE("labels that are no text are refused") {
  CHECK(code([](auto c) {
          auto labels = c.initLabels(1);
          labels[0].setName("k");
          labels[0].setValue("\xff\xfe");
        }) == base::errc::invalid_argument);
}
