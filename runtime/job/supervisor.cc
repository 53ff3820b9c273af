#include "runtime/job/supervisor.h"

#include <signal.h>

#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/job/stop_signal.h"
#include "runtime/process/child_process.h"

namespace lockstep::job {

absl::Status Supervise(const SupervisorOptions& options) {
  process::Spawner spawner(process::SelfShim());
  process::ChildOptions child_options;
  child_options.argv = options.child_argv;
  bool stop_passed_on = false;
  for (int restarts = 0;; ++restarts) {
    ASSIGN_OR_RETURN(const std::unique_ptr<process::ChildProcess> child, spawner.Spawn(child_options));
    LogInfo(absl::StrCat("rollout worker runs as process ", child->pid()));
    absl::StatusOr<process::ExitReason> reason = absl::DeadlineExceededError("");
    while (!reason.ok()) {
      reason = child->Wait(std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
      if (!reason.ok() && !absl::IsDeadlineExceeded(reason.status())) return reason.status();
      if (StopRequested() && !stop_passed_on) {
        stop_passed_on = true;
        child->Signal(SIGUSR1);
      }
    }
    if (reason->clean()) return absl::OkStatus();
    if (restarts >= options.max_restarts) {
      return absl::AbortedError(
          absl::StrCat("the rollout worker ", reason->Text(), " ", restarts + 1, " times: giving up"));
    }
    LogWarning(absl::StrCat("the rollout worker ", reason->Text(), ": starting it again"));
    stop_passed_on = false;
  }
}

}  // namespace lockstep::job
