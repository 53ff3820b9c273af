// SIGINT, SIGTERM and SIGUSR1 ask the run to end after the step at hand. The handler only sets a flag.
#ifndef LOCKSTEP_RUNTIME_JOB_STOP_SIGNAL_H_
#define LOCKSTEP_RUNTIME_JOB_STOP_SIGNAL_H_

namespace lockstep::job {

// Installs the handlers of this process. A second SIGINT ends the process at once, as people expect.
void InstallStopSignals();

// True once one of the signals came. Any thread.
bool StopRequested();

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_STOP_SIGNAL_H_
