// A program that is nothing but the shim, for tests that spawn children: the test programs' own main belongs to
// GoogleTest and knows no child-exec.
#include <cstring>

#include "runtime/process/child_process.h"

int main(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "child-exec") != 0) return 2;
  return lockstep::process::RunShim(argc - 2, argv + 2);
}
