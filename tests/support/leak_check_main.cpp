// leak_check INSTANCE STATE [--records] [--live POOL]: prints what the instance has left on this
// host; exit 1 if anything.
//
//   --records     spools of ended sandboxes may stay
//   --live POOL   it runs, without a sandbox, and may keep POOL slots ready
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string_view>

#include "support/leak_check.hpp"

int main(int argc, char** argv) {
  std::optional<std::size_t> pool;
  bool records = false, good = argc >= 3;
  for (int i = 3; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--records")
      records = true;
    else if (word == "--live" && i + 1 < argc)
      pool = std::strtoul(argv[++i], nullptr, 10);
    else
      good = false;
  }
  if (!good) {
    std::cerr << "usage: leak_check INSTANCE STATE [--records] [--live POOL]\n";
    return 2;
  }
  dsec::test::leak_scope scope{argv[1], argv[2]};
  scope.spools_allowed = records;
  const auto leaks =
      pool ? dsec::test::find_live_leaks(scope, *pool) : dsec::test::find_leaks(scope);
  for (const auto& leak : leaks) std::cout << leak << '\n';
  return leaks.empty() ? 0 : 1;
}
