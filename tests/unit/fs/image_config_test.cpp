#include "fs/image_config.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace {

using dsec::base::errc;
using dsec::fs::image_config;
using dsec::fs::merge;
using dsec::fs::parse_image_config;
using dsec::fs::to_json;

using variables = std::vector<std::pair<std::string, std::string>>;

image_config with_env(variables env) {
  image_config c;
  c.env = std::move(env);
  return c;
}

std::string value_of(const image_config& c, const std::string& name) {
  for (const auto& [n, v] : c.env) {
    if (n == name) return v;
  }
  return "(unset)";
}

std::string repeat(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE("a whole image configuration and its inner object read the same") {
  const std::string inner =
      R"({"Env":["PATH=/a:/b","EMPTY=","X=1=2"],"WorkingDir":"/w","User":"joe:users",
                               "Entrypoint":["/init","-v"],"Labels":{"k":"v"},"Cmd":["serve","80"],"Volumes":{"/v":{}}})";
  const auto whole =
      parse_image_config(R"({"architecture":"amd64","rootfs":{},"config":)" + inner + "}");
  const auto alone = parse_image_config(inner);
  REQUIRE(whole);
  REQUIRE(alone);
  CHECK(*whole == *alone);
  CHECK(whole->env == variables{{"PATH", "/a:/b"}, {"EMPTY", ""}, {"X", "1=2"}});
  CHECK(whole->cwd == "/w");
  CHECK(whole->user == "joe:users");
  CHECK(whole->entrypoint == std::vector<std::string>{"/init", "-v"});
  CHECK(whole->cmd == std::vector<std::string>{"serve", "80"});
  CHECK(whole->labels.at("k") == "v");
}

TEST_CASE("nothing, null and empty mean unset") {
  const image_config unset;
  for (const char* text :
       {"{}", R"({"config":null})", R"({"config":{}})",
        R"({"Env":null,"WorkingDir":"","User":"","Entrypoint":null,"Labels":null})",
        R"({"Env":[],"WorkingDir":null,"Entrypoint":[],"Labels":{}})"}) {
    INFO(text);
    CHECK(parse_image_config(text).value() == unset);
  }
}

TEST_CASE("of two values for one variable the last counts, in the first one's place") {
  const auto c = parse_image_config(R"({"Env":["A=1","B=2","A=3"]})");
  REQUIRE(c);
  CHECK(c->env == variables{{"A", "3"}, {"B", "2"}});
}

TEST_CASE("errors name the text and the key") {
  struct row {
    const char* text;
    const char* says;
  };
  for (const auto& [text, says] : std::vector<row>{
           {R"({"Env":"A=1"})", "x.json: Env must be a list"},
           {R"({"config":{"Env":["A=1",2]}})", "x.json: config.Env[1] must be a string"},
           {R"({"Env":["A"]})", "Env[0] must be NAME=VALUE"},
           {R"({"Env":["=1"]})", "Env[0] must be NAME=VALUE"},
           {R"({"Env":["A=\u0000"]})", "Env[0] contains a NUL"},
           {R"({"WorkingDir":"relative"})", "WorkingDir must be an absolute path"},
           {R"({"WorkingDir":1})", "WorkingDir must be a string"},
           {R"({"User":"a:b:c"})", "User must be USER or USER:GROUP"},
           {R"({"User":"a\nb"})", "User must be USER or USER:GROUP"},
           {R"({"Entrypoint":"/bin/sh"})", "Entrypoint must be a list"},
           {R"({"Labels":["a"]})", "Labels must be an object"},
           {R"({"Labels":{"a\u001b":1}})", R"(Labels["a\u001b"] must be a string)"},
           {R"({"env":["A=1"]})", "env is written 'Env'"},
           {R"({"config":{"workingdir":"/"}})", "config.workingdir is written 'WorkingDir'"},
           {R"({"config":[]})", "config must be an object"},
           {R"({"schemaVersion":2,"config":{"digest":"sha256:0"}})", "this is a manifest"},
           {"[]", "must be a JSON object"},
           {"7", "must be a JSON object"},
           {"", "not valid JSON at byte"},
           {R"({"Env":["A=1")", "not valid JSON at byte"},
           {"{\"User\":\"\xff\xfe\"}", "not valid JSON"},
           {"{} trailing", "not valid JSON"},
           {R"({"Env":1e999})", "not valid JSON"},
       }) {
    INFO(text);
    const auto c = parse_image_config(text, "x.json");
    REQUIRE_FALSE(c);
    CHECK(c.error().code == errc::invalid_argument);
    CHECK(c.error().message.find("x.json: ") == 0);
    CHECK_THAT(c.error().message, Catch::Contains(says));
  }
}

TEST_CASE("size, nesting and counts are bounded", "[threat-17]") {
  CHECK(parse_image_config(std::string(2U << 20U, ' ')).error().code == errc::too_large);
  CHECK(parse_image_config(R"({"a":)" + std::string(500'000, '[')).error().code ==
        errc::invalid_argument);
  CHECK(parse_image_config(R"({"a":)" + repeat("[", 40) + repeat("]", 40) + "}").error().code ==
        errc::invalid_argument);
  CHECK(parse_image_config(R"({"a":)" + repeat("[", 20) + repeat("]", 20) + "}"));
  CHECK(parse_image_config(R"({"a":")" + repeat("[", 1000) +
                           "\"}"));  // brackets in strings are no nesting

  CHECK(parse_image_config(R"({"Env":["A=1")" + repeat(",\"A=1\"", 1023) + "]}"));
  CHECK(parse_image_config(R"({"Env":["A=1")" + repeat(",\"A=1\"", 1024) + "]}").error().code ==
        errc::too_large);
  CHECK(parse_image_config(R"({"Env":["A=)" + std::string(200'000, 'x') + "\"]}").error().code ==
        errc::too_large);
  CHECK(parse_image_config(R"({"WorkingDir":"/)" + std::string(5000, 'x') + "\"}").error().code ==
        errc::too_large);
  CHECK(parse_image_config(R"({"User":")" + std::string(300, 'x') + "\"}").error().code ==
        errc::too_large);
}

TEST_CASE("a configuration survives its text") {
  image_config c;
  c.env = {{"PATH", "/x"}, {"Q", "\"\\ \n \xe2\x82\xac"}, {"E", ""}};
  c.cwd = "/w d";
  c.user = "0:0";
  c.entrypoint = {"a", "", "c"};
  c.cmd = {"", "d"};
  c.labels = {{"org.x", "y"}, {"z", ""}};
  CHECK(parse_image_config(to_json(c)).value() == c);
  CHECK(parse_image_config(to_json({})).value() == image_config{});
}

TEST_CASE("scalars, variables and labels come from the topmost layer that has them") {
  image_config base = with_env({{"A", "base"}, {"B", "base"}});
  base.cwd = "/";
  base.user = "root";
  base.entrypoint = {"/base"};
  base.labels = {{"l", "base"}, {"m", "base"}};
  image_config workspace = with_env({{"B", "ws"}, {"C", "ws"}});
  workspace.cwd = "/workspace";
  workspace.labels = {{"m", "ws"}};
  image_config tool = with_env({{"C", "tool"}});
  tool.user = "joe";

  const auto merged = merge(base, &workspace, std::vector{tool});
  CHECK(value_of(merged, "A") == "base");
  CHECK(value_of(merged, "B") == "ws");
  CHECK(value_of(merged, "C") == "tool");
  CHECK(merged.cwd == "/workspace");
  CHECK(merged.user == "joe");
  CHECK(merged.entrypoint == std::vector<std::string>{"/base"});
  CHECK(merged.labels == std::map<std::string, std::string>{{"l", "base"}, {"m", "ws"}});
}

TEST_CASE(
    "a layer's entrypoint takes the arguments of those below away, its arguments take their "
    "place") {
  image_config base;
  base.entrypoint = {"/base"};
  base.cmd = {"below"};
  image_config own_arguments;
  own_arguments.cmd = {"mine"};
  image_config own_entry;
  own_entry.entrypoint = {"/tool"};
  CHECK(merge(base, nullptr, {}).cmd == base.cmd);
  const auto replaced = merge(base, nullptr, std::vector{own_arguments});
  CHECK(replaced.entrypoint == base.entrypoint);
  CHECK(replaced.cmd == own_arguments.cmd);
  const auto taken = merge(base, &own_entry, {});
  CHECK(taken.entrypoint == own_entry.entrypoint);
  CHECK(taken.cmd.empty());
}

TEST_CASE("toolkits put their PATH before what is below, the last one first") {
  const auto base = with_env({{"PATH", "/base/bin"}, {"A", "1"}});
  const auto workspace = with_env({{"PATH", "/ws/bin:/bin"}});
  const std::vector tools{with_env({{"PATH", "/t1/bin:/t1/sbin"}}), with_env({{"X", "1"}}),
                          with_env({{"PATH", "/t2/bin"}})};
  CHECK(value_of(merge(base, nullptr, {}), "PATH") == "/base/bin");
  CHECK(value_of(merge(base, &workspace, {}), "PATH") == "/ws/bin:/bin");
  const auto merged = merge(base, &workspace, tools);
  CHECK(value_of(merged, "PATH") == "/t2/bin:/t1/bin:/t1/sbin:/ws/bin:/bin");
  CHECK(merged.env.front().first == "PATH");
}

TEST_CASE("without any PATH the usual one is set, below the toolkits'") {
  const std::string usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  CHECK(value_of(merge({}, nullptr, {}), "PATH") == usual);
  CHECK(value_of(merge({}, nullptr, std::vector{with_env({{"PATH", "/t"}})}), "PATH") ==
        "/t:" + usual);
}

TEST_CASE("a toolkit that carries a whole PATH moves nothing of the base's") {
  const auto base = with_env({{"PATH", "/special:/usr/bin:/bin"}});
  const std::vector tools{with_env({{"PATH", "/opt/t/bin:/usr/bin::/bin:/opt/t/bin"}})};
  CHECK(value_of(merge(base, nullptr, tools), "PATH") == "/opt/t/bin:/special:/usr/bin:/bin");
}
