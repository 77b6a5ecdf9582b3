// Loading of the filters (filter.hpp).
#include "guest/aether/filter.hpp"

#include "guest/aether/filter_program.hpp"
#include "guest/aether/syscall.hpp"

namespace dsec::guest::aether {
namespace {

constexpr filter_program sandbox_filter = build_sandbox_filter();
constexpr filter_program command_filter = build_command_filter();

long load(const filter_program& program) {
  struct {
    unsigned short size;
    const sock_filter* code;
  } const argument = {program.size, program.code};
  return sys::call(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &argument);
}

}  // namespace

long load_sandbox_filter() {
  return load(sandbox_filter);
}
long load_command_filter() {
  return load(command_filter);
}

}  // namespace dsec::guest::aether
