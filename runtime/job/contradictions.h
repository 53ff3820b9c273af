// Options that somebody wrote and that another option leaves without effect: a run whose file says two things is
// stopped, since one of them was not meant.
#ifndef LOCKSTEP_RUNTIME_JOB_CONTRADICTIONS_H_
#define LOCKSTEP_RUNTIME_JOB_CONTRADICTIONS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "runtime/job/options.h"

namespace lockstep::job {

// `written_at` as in Config: only what was written can contradict, never a default. The error names both paths, both
// values and both places.
absl::Status CheckContradictions(const RunOptions& options, const std::map<std::string, std::string>& written_at);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_CONTRADICTIONS_H_
