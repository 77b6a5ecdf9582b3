#include "guest/aether/decode.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

using namespace dsec::guest;

namespace {

exec_body good_body() {
  exec_body e = {};
  std::strcpy(e.id, "build-1");
  e.spool_cap = 4096;
  e.argc = 1;
  e.strings_length = 8;  // "ls", "/", "me"
  return e;
}

const std::string good_strings("ls\0/\0me\0", 8);

std::string datagram(const exec_body& e, const std::string& strings) {
  header h = {};
  h.type = static_cast<std::uint16_t>(msg::exec);
  h.length = static_cast<std::uint32_t>(sizeof h + sizeof e + strings.size());
  std::string out(sizeof h + sizeof e, '\0');
  std::memcpy(out.data(), &h, sizeof h);
  std::memcpy(out.data() + sizeof h, &e, sizeof e);
  return out + strings;
}

exec_check check(const exec_body& e, const std::string& strings = good_strings,
                 std::size_t fds = 3) {
  const std::string d = datagram(e, strings);
  exec_body out;
  return decode_exec(d.data(), d.size(), fds, out);
}

template <class change>
exec_check changed(change apply) {
  exec_body e = good_body();
  apply(e);
  return check(e);
}

}  // namespace

TEST_CASE("a header must tell the datagram's own length") {
  const std::string d = datagram(good_body(), good_strings);
  header h = {};
  CHECK(decode_header(d.data(), d.size(), h));
  CHECK(h.type == static_cast<std::uint16_t>(msg::exec));
  CHECK_FALSE(decode_header(d.data(), d.size() - 1, h));
  CHECK_FALSE(decode_header(d.data(), sizeof(header) - 1, h));
  CHECK_FALSE(decode_header(d.data(), 0, h));
  std::string bad = d;
  bad[2] = 1;  // reserved
  CHECK_FALSE(decode_header(bad.data(), bad.size(), h));
}

TEST_CASE("a body has exactly its length") {
  std::string d(sizeof(header) + sizeof(kill_body), '\0');
  kill_body k;
  CHECK(decode_body(d.data(), d.size(), k));
  d += '\0';
  CHECK_FALSE(decode_body(d.data(), d.size(), k));
  CHECK_FALSE(decode_body(d.data(), d.size() - 2, k));
}

TEST_CASE("ids are printable, not empty and zero-padded") {
  char id[max_command_id] = {};
  CHECK_FALSE(valid_id(id));
  std::strcpy(id, "a-1");
  CHECK(valid_id(id));
  id[10] = 'x';
  CHECK_FALSE(valid_id(id));
  std::memset(id, 'z', sizeof id);
  CHECK(valid_id(id));
  id[3] = ' ';
  CHECK_FALSE(valid_id(id));
  id[3] = '\x80';
  CHECK_FALSE(valid_id(id));
}

TEST_CASE("an exec is judged field by field") {
  CHECK(check(good_body()) == exec_check::ok);
  CHECK(changed([](exec_body& e) { e.id[0] = '\0'; }) == exec_check::nameless);
  exec_body out;
  const std::string d = datagram(good_body(), "");
  CHECK(decode_exec(d.data(), d.size() - 1, 3, out) == exec_check::nameless);

  const auto bad = exec_check::bad_request;
  CHECK(changed([](exec_body& e) { e.kind = 4; }) == bad);
  CHECK(changed([](exec_body& e) { e.flags = 2; }) == bad);
  CHECK(changed([](exec_body& e) { e.reserved = 1; }) == bad);
  CHECK(changed([](exec_body& e) { e.argc = 0; }) == bad);
  CHECK(changed([](exec_body& e) { e.argc = 7; }) == bad);
  CHECK(changed([](exec_body& e) { e.argc = 0xffffffff, e.envc = 3; }) == bad);
  CHECK(changed([](exec_body& e) { e.spool_cap = 0; }) == bad);
  CHECK(changed([](exec_body& e) { e.spool_cap = 4097; }) == bad);
  CHECK(changed([](exec_body& e) { e.spool_cap = UINT64_MAX - 1; }) == bad);
  CHECK(changed([](exec_body& e) { e.strings_length = 7; }) == bad);
  CHECK(changed([](exec_body& e) { e.strings_length = 9; }) == bad);
  CHECK(changed([](exec_body& e) { e.mode = 0100644; }) == bad);
  CHECK(changed([](exec_body& e) { e.offset = UINT64_MAX; }) == bad);
  CHECK(changed([](exec_body& e) { e.offset = INT64_MAX, e.length = 1; }) == bad);
  CHECK(changed([](exec_body& e) { e.payload_fd = 2; }) == bad);
  CHECK(check(good_body(), good_strings, 2) == bad);
  CHECK(check(good_body(), good_strings, 4) == bad);

  exec_body shell = good_body();
  shell.kind = static_cast<std::uint32_t>(exec_kind::shell);
  CHECK(check(shell) == exec_check::ok);
  shell.argc = 2;
  CHECK(check(shell) == bad);
}

TEST_CASE("a command without input brings one descriptor less") {
  exec_body e = good_body();
  e.flags = exec_no_input;
  CHECK(check(e, good_strings, 2) == exec_check::ok);
  CHECK(check(e, good_strings, 3) == exec_check::bad_request);
  e.payload_fd = 1;
  CHECK(check(e, "", 3) == exec_check::ok);
  CHECK(check(e, "", 4) == exec_check::bad_request);
}

TEST_CASE("strings in a payload have a bound of their own") {
  exec_body e = good_body();
  e.payload_fd = 1;
  e.strings_length = max_strings;
  CHECK(check(e, "", 4) == exec_check::ok);
  CHECK(check(e, "x", 4) == exec_check::bad_request);
  CHECK(check(e, "", 3) == exec_check::bad_request);
  e.strings_length = max_strings + 1;
  CHECK(check(e, "", 4) == exec_check::bad_request);
}

TEST_CASE("strings are cut into what execve wants") {
  std::string s("ls\0-l\0A=1\0/tmp\0root\0", 20);
  std::vector<char*> pointers(pointers_needed(2, 1));
  command_strings out = {};
  REQUIRE(cut_strings(s.data(), 20, 2, 1, pointers.data(), out));
  CHECK(out.argv[0] == std::string("ls"));
  CHECK(out.argv[1] == std::string("-l"));
  CHECK(out.argv[2] == nullptr);
  CHECK(out.envp[0] == std::string("A=1"));
  CHECK(out.envp[1] == nullptr);
  CHECK(out.envp[2] == nullptr);
  CHECK(out.cwd == std::string("/tmp"));
  CHECK(out.user == std::string("root"));
}

TEST_CASE("strings that are not as many as announced are refused") {
  std::string s("ls\0/\0me\0", 8);
  std::vector<char*> pointers(32);
  command_strings out = {};
  CHECK(cut_strings(s.data(), 8, 1, 0, pointers.data(), out));
  CHECK_FALSE(cut_strings(s.data(), 8, 2, 0, pointers.data(), out));
  CHECK_FALSE(cut_strings(s.data(), 8, 0, 0, pointers.data(), out));
  CHECK_FALSE(cut_strings(s.data(), 7, 1, 0, pointers.data(), out));
  CHECK_FALSE(cut_strings(s.data(), 0, 0, 0, pointers.data(), out));
}
