// The child's side of a spawn: it ties its life to the parent's, then becomes the wanted command.
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/process/child_process.h"
#include "runtime/process/shim_protocol.h"

namespace lockstep::process {
namespace {

bool Say(int status_fd, int word) { return write(status_fd, &word, sizeof word) == sizeof word; }

int Fail(int status_fd, int error_number) { return Say(status_fd, error_number) ? 127 : 126; }

}  // namespace

int RunShim(int argc, char** argv) {
  unsetenv(kShimMark);  // the command may use this library too
  if (argc < 4 || strcmp(argv[2], "--") != 0) {
    fprintf(stderr, "child-exec is for the program's own use: child-exec PARENT_PID STATUS_FD -- COMMAND ...\n");
    return 2;
  }
  const pid_t parent = static_cast<pid_t>(strtol(argv[0], nullptr, 10));
  const int status_fd = static_cast<int>(strtol(argv[1], nullptr, 10));
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return Fail(status_fd, errno);
  if (getppid() != parent) return 1;  // the parent ended before the line above: nobody is left to tell
  if (fcntl(status_fd, F_SETFD, FD_CLOEXEC) != 0) return 1;
  // Whatever libraries of the parent left open is closed by the exec. (Kernels before 5.11 lack the flag: then only
  // what was opened with O_CLOEXEC is.)
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  if (!Say(status_fd, kShimStarted)) return 1;
  execvp(argv[3], argv + 3);
  return Fail(status_fd, errno);
}

}  // namespace lockstep::process
