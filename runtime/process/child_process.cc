#include "runtime/process/child_process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace lockstep::process {

std::string ExitReason::Text() const {
  if (signal != 0) return absl::StrCat("killed by signal ", signal, " (", strsignal(signal), ")");
  return absl::StrCat("exited with code ", exit_code);
}

ChildProcess::ChildProcess(pid_t pid, std::string name, std::unique_ptr<LineChannel> lines)
    : pid_(pid), name_(std::move(name)), lines_(std::move(lines)) {}

ChildProcess::~ChildProcess() { Terminate(std::chrono::milliseconds(0)); }

LineChannel& ChildProcess::lines() {
  CHECK(lines_ != nullptr);
  return *lines_;
}

bool ChildProcess::Poll() {
  if (ended_) return true;
  siginfo_t info = {};
  // WNOWAIT: until it is reaped its number cannot be given to another group, so the group may be killed safely.
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    CHECK(errno == EINTR);  // ECHILD: somebody else reaped our child
    return false;
  }
  if (info.si_pid == 0) return false;
  kill(-pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) CHECK(errno == EINTR);
  if (WIFSIGNALED(status)) {
    reason_.signal = WTERMSIG(status);
  } else {
    reason_.exit_code = WEXITSTATUS(status);
  }
  ended_ = true;
  return true;
}

bool ChildProcess::IsRunning() { return !Poll(); }

absl::StatusOr<ExitReason> ChildProcess::Wait(Deadline deadline) {
  std::chrono::microseconds pause(200);
  while (!Poll()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return absl::DeadlineExceededError(absl::StrCat(name_, " (pid ", pid_, ") still runs"));
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(std::chrono::nanoseconds(pause), deadline - now));
    pause = std::min<std::chrono::microseconds>(pause * 3 / 2, std::chrono::milliseconds(20));
  }
  return reason_;
}

ExitReason ChildProcess::Terminate(std::chrono::milliseconds grace) {
  if (Poll()) return reason_;
  if (grace.count() > 0) {
    kill(-pid_, SIGTERM);
    if (Wait(std::chrono::steady_clock::now() + grace).ok()) return reason_;
  }
  kill(-pid_, SIGKILL);
  CHECK(Wait(Deadline::max()).ok());
  return reason_;
}

void ChildProcess::Signal(int signal) {
  if (!Poll()) kill(pid_, signal);
}

}  // namespace lockstep::process
