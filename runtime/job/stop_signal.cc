#include "runtime/job/stop_signal.h"

#include <signal.h>

#include <atomic>

namespace lockstep::job {
namespace {

// A signal is the process's by nature.
std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnSignal(int signal_number) {
  if (stop_requested.exchange(true) && signal_number == SIGINT) {
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
  }
}

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int signal_number : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal_number, &action, nullptr);
}

bool StopRequested() { return stop_requested.load(std::memory_order_relaxed); }

}  // namespace lockstep::job
