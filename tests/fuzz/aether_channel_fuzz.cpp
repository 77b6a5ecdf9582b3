// What aether reads from its channel: any bytes, with any number of descriptors (first byte),
// through every check and the cutting of strings. Strings that pass must be whole and terminated.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "guest/aether/decode.hpp"

using namespace dsec::guest;

namespace {

void read_all(const command_strings& s, std::uint32_t argc, std::uint32_t envc) {
  std::size_t n = std::strlen(s.cwd) + std::strlen(s.user);
  for (std::uint32_t i = 0; i < argc; ++i) n += std::strlen(s.argv[i]);
  for (std::uint32_t i = 0; i < envc; ++i) n += std::strlen(s.envp[i]);
  const bool terminated =
      s.argv[argc] == nullptr && s.envp[envc] == nullptr && s.envp[envc + 1] == nullptr;
  if (!terminated || n > max_strings) std::abort();
}

void cut(const exec_body& e, const std::uint8_t* strings, std::size_t n) {
  std::vector<char> copy(strings, strings + n);
  std::vector<char*> pointers(pointers_needed(e.argc, e.envc));
  command_strings out = {};
  if (cut_strings(copy.data(), static_cast<std::uint32_t>(n), e.argc, e.envc, pointers.data(),
                  out)) {
    read_all(out, e.argc, e.envc);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t fds = data[0] % 8;
  ++data;
  --size;
  header head;
  if (!decode_header(data, size, head)) return 0;
  kill_body k;
  if (decode_body(data, size, k)) (void)valid_id(k.id);
  hello_body hello;
  (void)decode_body(data, size, hello);
  boot_body boot;
  (void)decode_body(data, size, boot);
  exec_body e;
  if (decode_exec(data, size, fds, e) == exec_check::ok && e.payload_fd == 0) {
    constexpr std::size_t before = sizeof(header) + sizeof(exec_body);
    if (e.strings_length != size - before) std::abort();
    cut(e, data + before, size - before);
  }
  return 0;
}
