#include "actors/replies.hpp"

#include <catch2/catch.hpp>

#include "base/text.hpp"
#include "proto/client.capnp.h"

using namespace dsec::actors;
namespace base = dsec::base;
namespace proto = dsec::proto;

namespace {

const std::string broken = "caf\xE9 \xFF\xE6\xBC";

void check(capnp::Text::Reader text) {
  CHECK(base::is_utf8({text.begin(), text.size()}));
  CHECK(std::string_view(text.begin(), text.size()).starts_with("caf"));
}

}  // namespace

TEST_CASE("every text of a reply is UTF-8 whatever it was made of") {
  const auto error = error_reply(1, {base::errc::not_found, broken, 2}, broken);
  REQUIRE(proto::view<proto::Reply>(error).read([](proto::Reply::Reader r) {
    check(r.getBody().getError().getMessage());
    check(r.getBody().getError().getObject());
  }));

  command c;
  c.id = "c1";
  c.argv = {broken};
  REQUIRE(proto::view<proto::Reply>(command_reply(1, "e0-a", c)).read([](proto::Reply::Reader r) {
    check(r.getBody().getCommand().getArgv()[0]);
  }));

  auto record = std::make_shared<sandbox_record>();
  record->detail = broken;
  record->spec.image = record->spec.workspace = broken;
  record->spec.toolkits = record->spec.warnings = {broken};
  record->spec.labels = {{broken, broken}};
  const auto sandbox = sandbox_reply(1, {record, 0});
  REQUIRE(proto::view<proto::Reply>(sandbox).read([](proto::Reply::Reader r) {
    const auto s = r.getBody().getSandbox();
    check(s.getCauseDetail());
    check(s.getImage());
    check(s.getWorkspace());
    check(s.getToolkits()[0]);
    check(s.getWarnings()[0]);
    check(s.getLabels()[0].getName());
    check(s.getLabels()[0].getValue());
  }));
}

TEST_CASE("a list that does not fit says so, and one that does does not") {
  auto record = std::make_shared<sandbox_record>();
  record->spec.labels = {{"k", std::string(4000, 'x')}};
  const auto listed = [&](std::size_t n) {
    const std::vector<sandbox_view> views(n, sandbox_view{record, 0});
    std::pair<bool, std::size_t> out;
    REQUIRE(proto::view<proto::Reply>(sandboxes_reply(1, views)).read([&](proto::Reply::Reader r) {
      out = {r.getTruncated(), r.getBody().getSandboxes().size()};
    }));
    return out;
  };
  CHECK(listed(100) == std::pair<bool, std::size_t>(false, 100));
  CHECK(listed(5000).first);
  CHECK(listed(5000).second > 3000);

  command c;
  c.id = "c1";
  c.argv = {std::string(4096, 'x')};
  const std::vector<const command*> many(4500, &c);
  REQUIRE(proto::view<proto::Reply>(commands_reply(1, "e0-a", many)).read([](auto r) {
    CHECK(r.getTruncated());
    CHECK(r.getBody().getCommands().size() < 4500);
  }));
}
