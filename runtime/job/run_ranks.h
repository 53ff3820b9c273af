// A job of several ranks: every rank reads the plan, the ranks meet, rollout ranks supervise a worker, and the learner
// rank does the work that the command is about (train, evaluate) with a generator that hands prompts to the workers.
// Alone, a rank samples on its own, in turns with that work.
#ifndef LOCKSTEP_RUNTIME_JOB_RUN_RANKS_H_
#define LOCKSTEP_RUNTIME_JOB_RUN_RANKS_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "runtime/job/commands.h"
#include "runtime/job/job_parts.h"

namespace lockstep::job {

// Must call Finish of the parts' generator, so that the workers end.
using LearnerWork = std::function<absl::Status(JobParts parts)>;

enum class Needs : uint8_t { kTrain, kEval };  // which data must be there

// Every rank calls it; an error of the plan or of the data is every rank's, and rank 0 has its message. An error later
// on ends all ranks.
absl::Status RunRanks(const ConfigArgs& args, Needs needs, const LearnerWork& work);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_RUN_RANKS_H_
