// leak_check INSTANCE STATE [--records]: prints what the instance has left on this host; exit 1 if
// anything.
// --records: spools of ended sandboxes may stay.
#include <cstring>
#include <iostream>

#include "support/leak_check.hpp"

int main(int argc, char** argv) {
  const bool records = argc == 4 && std::strcmp(argv[3], "--records") == 0;
  if (argc != 3 && !records) {
    std::cerr << "usage: leak_check INSTANCE STATE [--records]\n";
    return 2;
  }
  dsec::test::leak_scope scope{argv[1], argv[2]};
  scope.spools_allowed = records;
  const auto leaks = dsec::test::find_leaks(scope);
  for (const auto& leak : leaks) std::cout << leak << '\n';
  return leaks.empty() ? 0 : 1;
}
