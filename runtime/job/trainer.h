// The training run of the learner rank: sample, score, train, publish, report; evaluation before, in and after the
// loop.
#ifndef LOCKSTEP_RUNTIME_JOB_TRAINER_H_
#define LOCKSTEP_RUNTIME_JOB_TRAINER_H_

#include "absl/status/status.h"
#include "runtime/job/job_parts.h"

namespace lockstep::job {

// Runs to the end, or to the step at hand once a stop signal came; exports the model in both cases.
absl::Status Train(JobParts parts);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_TRAINER_H_
