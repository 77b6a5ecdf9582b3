// Entry point of aether.
extern "C" [[noreturn]] void _start() {
  asm volatile("syscall" : : "a"(231), "D"(0));
  __builtin_unreachable();
}
