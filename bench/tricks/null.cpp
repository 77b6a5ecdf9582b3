// A program that ends at once, or waits for a signal when it is given an argument. Compiled twice:
// on the C library, and with an entry point of its own.
#include "floor/sys.hpp"

namespace {

[[noreturn]] void run(long arguments) {
  if (arguments > 1) floor_bench::call(__NR_pause);
  floor_bench::call(__NR_exit_group, 0);
  __builtin_unreachable();
}

}  // namespace

#ifdef NO_LIBC
extern "C" [[noreturn, gnu::used]] void null_start(const long* stack) {
  run(*stack);
}

asm(".globl _start\n"
    "_start:\n"
    "  mov %rsp, %rdi\n"
    "  and $-16, %rsp\n"
    "  call null_start\n");
#else
int main(int argc, char**) {
  run(argc);
}
#endif
