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
