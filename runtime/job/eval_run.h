// The command `eval`.
#ifndef LOCKSTEP_RUNTIME_JOB_EVAL_RUN_H_
#define LOCKSTEP_RUNTIME_JOB_EVAL_RUN_H_

#include <ostream>

#include "absl/status/status.h"
#include "runtime/job/job_parts.h"

namespace lockstep::job {

// Evaluates the model as loaded, and writes the report to `out` as one JSON object in a line, with "model" and
// "weight_hash"; for people it goes to the log.
absl::Status EvaluateModel(JobParts parts, std::ostream& out);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_EVAL_RUN_H_
