// A rollout rank: it stays in MPI, does no work itself, and keeps one child alive that does
// (runtime/job/rollout_worker.h).
#ifndef LOCKSTEP_RUNTIME_JOB_SUPERVISOR_H_
#define LOCKSTEP_RUNTIME_JOB_SUPERVISOR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lockstep::job {

struct SupervisorOptions {
  std::vector<std::string> child_argv;
  // Deaths in a row that are too many: the child would not recover on its own.
  int max_restarts = 5;
};

// Returns when the child has left with code 0; restarts it when it dies. A stop signal is passed on to the child, which
// tells the coordinator.
absl::Status Supervise(const SupervisorOptions& options);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_SUPERVISOR_H_
