// A program for tests that spawn children: the test programs' own main belongs to GoogleTest and knows no child-exec.
//   child-exec ...   the shim
//   spawn-sleep      a parent: spawns a long sleep, prints its pid and waits to be killed
#include <stdio.h>
#include <unistd.h>

#include <cstring>

#include "runtime/process/child_process.h"

namespace {

int SpawnSleep() {
  lockstep::process::Spawner spawner(lockstep::process::SelfShim());
  lockstep::process::ChildOptions options;
  options.argv = {"sleep", "600"};
  const auto child = spawner.Spawn(options);
  if (!child.ok()) return 1;
  printf("%d\n", static_cast<int>((*child)->pid()));
  fflush(stdout);
  while (true) pause();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 2 && std::strcmp(argv[1], "child-exec") == 0) return lockstep::process::RunShim(argc - 2, argv + 2);
  if (argc == 2 && std::strcmp(argv[1], "spawn-sleep") == 0) return SpawnSleep();
  return 2;
}
