#include "proto/json.hpp"

#include <capnp/dynamic.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <limits>
#include <random>

#include "unit/proto/messages.hpp"

using namespace dsec::proto;
using namespace dsec::proto::test;
using dsec::base::errc;

namespace {

const auto request_schema = capnp::Schema::from<Request>();

/// Messages of every shape that the schema allows.
class any_message {
 public:
  explicit any_message(unsigned seed) : random_(seed) {}

  frame make(capnp::StructSchema root) {
    capnp::MallocMessageBuilder message;
    fill(message.initRoot<capnp::DynamicStruct>(root));
    return frame::from_builder(message);
  }

 private:
  std::uint64_t number() {
    // Also those that no double holds.
    const auto bits = random_() % 65;
    return bits == 0 ? 0 : std::numeric_limits<std::uint64_t>::max() >> (64 - bits);
  }

  std::string text() {
    static const std::vector<std::string> pieces{
        "a", "\"",     "\\",         "\n",        std::string(1, '\0'),
        "é", "\u2028", "\U0001F600", "</script>", "\x7F"};
    std::string out;
    for (auto n = random_() % 6; n > 0; --n) out += pieces[random_() % pieces.size()];
    return out;
  }

  void fill(capnp::DynamicStruct::Builder into) {
    for (const auto field : into.getSchema().getNonUnionFields()) set(into, field);
    const auto members = into.getSchema().getUnionFields();
    if (members.size() > 0) set(into, members[static_cast<unsigned>(random_() % members.size())]);
  }

  void set(capnp::DynamicStruct::Builder into, capnp::StructSchema::Field field) {
    const auto type = field.getType();
    if (type.isStruct()) return fill(into.init(field).as<capnp::DynamicStruct>());
    if (type.isList()) {
      auto list = into.init(field, random_() % 4).as<capnp::DynamicList>();
      for (unsigned i = 0; i < list.size(); ++i) {
        const auto element = type.asList().getElementType();
        if (element.isStruct())
          fill(list[i].as<capnp::DynamicStruct>());
        else
          plain(element, [&](const capnp::DynamicValue::Reader& v) { list.set(i, v); });
      }
      return;
    }
    plain(type, [&](const capnp::DynamicValue::Reader& v) { into.set(field, v); });
  }

  template <class Set>
  void plain(capnp::Type type, const Set& set) {
    using which = capnp::schema::Type;
    switch (type.which()) {
      case which::VOID:
        return set(capnp::VOID);
      case which::BOOL:
        return set(random_() % 2 == 0);
      case which::INT32:
        return set(static_cast<std::int32_t>(number()));
      case which::UINT32:
        return set(static_cast<std::uint32_t>(number()));
      case which::UINT64:
        return set(number());
      case which::TEXT: {
        const auto t = text();
        return set(capnp::Text::Reader(t.c_str(), t.size()));
      }
      case which::DATA: {
        std::vector<kj::byte> data(random_() % 100);
        for (auto& b : data) b = static_cast<kj::byte>(random_());
        return set(capnp::Data::Reader(data.data(), data.size()));
      }
      case which::ENUM: {
        const auto all = type.asEnum().getEnumerants();
        return set(capnp::DynamicEnum(all[static_cast<unsigned>(random_() % all.size())]));
      }
      default:
        FAIL("the protocol has a type that this test does not make");
    }
  }

  std::mt19937_64 random_;
};

std::string refused(std::string_view text) {
  const auto made = from_json(request_schema, text);
  REQUIRE_FALSE(made);
  CHECK(made.error().code == errc::protocol);
  return made.error().message;
}

template <class F>
void check_request(std::string_view text, const F& check) {
  const auto made = from_json(request_schema, text);
  INFO((made ? "" : made.error().message));
  REQUIRE(made);
  REQUIRE(view<Request>(*made).read([&](Request::Reader r) { check(r); }));
}

}  // namespace

TEST_CASE("every message is the same after a way through text", "[json]") {
  for (const auto root :
       {capnp::StructSchema(request_schema), capnp::StructSchema(capnp::Schema::from<Reply>())}) {
    for (unsigned seed = 0; seed < 500; ++seed) {
      CAPTURE(root.getShortDisplayName().cStr(), seed);
      const auto original = any_message(seed).make(root);
      const auto text = to_json(root, original);
      REQUIRE(text);
      const auto copy = from_json(root, *text);
      INFO(*text);
      INFO((copy ? "" : copy.error().message));
      REQUIRE(copy);
      capnp::FlatArrayMessageReader a(original.words()), b(copy->words());
      REQUIRE(a.getRoot<capnp::AnyPointer>() == b.getRoot<capnp::AnyPointer>());
    }
  }
}

TEST_CASE("a request as a stranger writes it", "[json]") {
  check_request(
      R"({"id": 7, "body": {"exec": {"sandboxId": "e0-x", "argv": ["echo", "\u00e9"],
          "stdin": "aGk=", "timeoutMs": "18446744073709551615", "cwd": null, "fromTheFuture": [1]}}})",
      [](Request::Reader r) {
        CHECK(r.getId() == 7);
        const auto exec = r.getBody().getExec();
        CHECK(exec.getArgv()[1] == "é");
        CHECK(exec.getStdin() == kj::StringPtr("hi").asBytes());
        CHECK(exec.getTimeoutMs() == std::numeric_limits<std::uint64_t>::max());
        CHECK(exec.getCwd().size() == 0);
      });
  check_request(R"({"id": "8", "body": {"ping": null}})", [](Request::Reader r) {
    CHECK(r.getId() == 8);
    CHECK(r.getBody().isPing());
  });
}

TEST_CASE("a request that this version does not know has no body", "[json]") {
  for (const auto* text : {R"({"id":1,"body":{"teleport":{}}})", R"({"id":1,"body":{}})",
                           R"({"id":1})", R"({"id":1,"body":{"unset":null}})"}) {
    check_request(text, [](Request::Reader r) { CHECK(r.getBody().isUnset()); });
  }
}

TEST_CASE("what does not fit the schema is refused, and the member is named", "[json]") {
  struct row {
    const char* text;
    const char* says;
  };
  for (const auto& [text, says] : {
           row{R"([])", "the message must be an object"},
           row{R"({"id": -1})", "id must be a whole number from 0 to 18446744073709551615"},
           row{R"({"id": 1.5})", "id must be a whole number"},
           row{R"({"id": 18446744073709551616})", "id must be a whole number"},
           row{R"({"id": " 1"})", "id must be a whole number"},
           row{R"({"id": "0x1"})", "id must be a whole number"},
           row{R"({"id": true})", "id must be a whole number"},
           row{R"({"deadlineMs": 4294967296})", "from 0 to 4294967295"},
           row{R"({"traceId": 5})", "traceId must be a string"},
           row{R"({"body": []})", "body must be an object"},
           row{R"({"body": {"ping": {}}})", "body.ping must be null"},
           row{R"({"body": {"exec": null}})", "body.exec must be an object"},
           row{R"({"body": {"ping": null, "hello": {}}})", "body has two members"},
           row{R"({"body": {"exec": {"wait": 1}}})", "body.exec.wait must be true or false"},
           row{R"({"body": {"exec": {"argv": "ls"}}})", "body.exec.argv must be a list"},
           row{R"({"body": {"exec": {"argv": ["ls", 1]}}})", "body.exec.argv[1] must be a string"},
           row{R"({"body": {"exec": {"argv": [null]}}})", "body.exec.argv[0] must be a string"},
           row{R"({"body": {"exec": {"env": [{"name": 1}]}}})", "body.exec.env[0].name must be"},
           row{R"({"body": {"exec": {"stdin": [104, 105]}}})", "must be a string in base64"},
           row{R"({"body": {"exec": {"stdin": "a*b="}}})", "body.exec.stdin is not base64"},
           row{R"({"id": 1)", "not JSON at byte"},
           row{"{\"traceId\": \"\xC3\x28\"}", "not JSON at byte"},
           row{"{\"traceId\": \"\\ud800\"}", "not JSON at byte"},
           row{R"({"id": 1e999})", "not JSON"},
           row{"", "not JSON at byte"},
       }) {
    CAPTURE(text);
    CHECK_THAT(refused(text), Catch::Contains(says));
  }
}

TEST_CASE("an enum is its name", "[json]") {
  const auto schema = capnp::Schema::from<Command>();
  const auto made = from_json(schema, R"({"state": "ended"})");
  REQUIRE(made);
  CHECK(view<Command>(*made).read([](Command::Reader c) { return c.getState(); }).value() ==
        CommandState::ENDED);
  CHECK_THAT(from_json(schema, R"({"state": "dancing"})").error().message,
             Catch::Contains("state cannot be 'dancing'"));
}

TEST_CASE("text that is small and values that are many are refused before they cost memory",
          "[json]") {
  std::string many = R"({"body":{"exec":{"argv":[)";
  for (std::size_t i = 0; i < max_json_values; ++i) many += "0,";
  many += "0]}}}";
  CHECK(from_json(request_schema, many).error().code == errc::too_large);
  CHECK(from_json(request_schema, std::string(1'000'000, '[')).error().code == errc::too_large);
  // As many as are allowed, under names that nobody knows.
  std::string objects = R"({"id":1,"unknown":[{})";
  for (std::size_t i = 0; i < max_json_values / 2 - 10; ++i) objects += ",{}";
  const auto began = std::chrono::steady_clock::now();
  CHECK(from_json(request_schema, objects + "]}"));
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(1));
  CHECK(from_json(request_schema, std::string(max_message_bytes + 1, ' ')).error().code ==
        errc::too_large);
}

TEST_CASE("bytes that are no UTF-8 do not reach the text", "[json]") {
  capnp::MallocMessageBuilder message;
  message.initRoot<Reply>().initBody().initError().setMessage("a\xFFz");
  const auto text = to_json(capnp::Schema::from<Reply>(), frame::from_builder(message));
  REQUIRE(text);
  CHECK_THAT(*text, Catch::Contains("a\uFFFDz"));
}

TEST_CASE("a message that is malformed inside is an error, not a text", "[json]") {
  // A root whose first pointer leads out of the message.
  const auto broken = frame::from_bytes(
      message({struct_pointer(0, 0, 1), std::uint64_t{struct_pointer(1000, 1, 0)}}));
  REQUIRE(broken);
  CHECK(to_json(request_schema, *broken).error().code == errc::protocol);
}
