// dsecd: one binary, coordinator or worker.
#include "cli/cli.hpp"

int main(int argc, char** argv) {
  return dsec::cli::run(argc, argv);
}
