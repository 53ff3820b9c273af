// Samples from rollout workers over the message bus.
//
// Prompts go out one by one to the worker with the fewest tokens outstanding; a worker that dies is noticed when its
// successor says hello (its supervisor restarts it) and its unanswered samples are asked for again. What comes back
// does not depend on who sampled it, so nothing needs to be remembered about that.
#ifndef LOCKSTEP_RUNTIME_JOB_REMOTE_GENERATOR_H_
#define LOCKSTEP_RUNTIME_JOB_REMOTE_GENERATOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/job/generator.h"
#include "transport/message_bus.h"

namespace lockstep::job {

struct RemoteGeneratorOptions {
  int num_workers = 1;
  std::string kernel_signature;  // workers with another one are refused
  // How long a worker may be silent before the run ends with an error that names it. A restart takes a few seconds.
  absl::Duration worker_deadline = absl::Seconds(60);
};

std::unique_ptr<Generator> MakeRemoteGenerator(std::unique_ptr<transport::Router> router,
                                               const RemoteGeneratorOptions& options);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_REMOTE_GENERATOR_H_
