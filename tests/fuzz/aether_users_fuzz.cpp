// A sandbox's /etc/passwd and /etc/group are whatever root inside makes of them. Fed in pieces
// whose size is the first byte; the result must not depend on it.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "guest/aether/user_scan.hpp"

using namespace dsec::guest::aether;

namespace {

template <class scan>
void feed(scan& into, const char* text, std::size_t size, std::size_t piece) {
  field_splitter<scan> split(into);
  for (std::size_t at = 0; at < size; at += piece) {
    split.feed(text + at, size - at < piece ? size - at : piece);
  }
  split.finish();
}

void must(bool good) {
  if (!good) std::abort();
}

void compare(const passwd_scan& a, const passwd_scan& b) {
  must(a.found == b.found && a.uid == b.uid && a.gid == b.gid);
  must(std::strcmp(a.home.c_str(), b.home.c_str()) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::size_t piece = data[0] + std::size_t{1};
  const char* text = reinterpret_cast<const char*>(data + 1);
  --size;
  const std::size_t whole = size + 1;

  passwd_scan by_name("joe", 0), by_name_whole("joe", 0), by_uid(nullptr, 1000),
      by_uid_whole(nullptr, 1000);
  feed(by_name, text, size, piece);
  feed(by_name_whole, text, size, whole);
  compare(by_name, by_name_whole);
  feed(by_uid, text, size, piece);
  feed(by_uid_whole, text, size, whole);
  compare(by_uid, by_uid_whole);

  group_scan group("joe", "team"), group_whole("joe", "team");
  feed(group, text, size, piece);
  feed(group_whole, text, size, whole);
  must(group.found == group_whole.found && group.named_gid == group_whole.named_gid);
  must(group.count == group_whole.count && group.count <= max_groups);
  return 0;
}
