// Which rank does what: a pure function of the options and the number of ranks.
//
//   ranks   roles auto                          a step
//   1       0: colocated                        samples, then trains, in one process
//   N > 1   0: learner, 1 .. N-1: rollout       rollout ranks share the step's prompts; the learner trains
//
// The result of a run does not depend on it: same seed, same weights, whatever the roles.
#ifndef LOCKSTEP_RUNTIME_JOB_PLAN_H_
#define LOCKSTEP_RUNTIME_JOB_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/job/options.h"

namespace lockstep::job {

enum class Role : uint8_t { kColocated, kLearner, kRollout };
const char* RoleName(Role role);  // "colocated", "learner", "rollout"

struct RankPlan {
  std::vector<Role> roles;         // [num_ranks]
  int learner_rank = 0;            // also runs the coordinator
  std::vector<int> rollout_ranks;  // ascending; the only rank if it is colocated
  int num_ranks() const { return static_cast<int>(roles.size()); }
};

// InvalidArgument says how many ranks the options can use: fewer than one, a rank in `roles` that is not there, a rank
// without a role, more learners than one, a rank that learns and samples beside others, more rollout ranks than prompts
// in a step.
absl::StatusOr<RankPlan> PlanRanks(const RunOptions& options, int num_ranks);

// Compute threads of a rank on a node whose ranks share `num_cpus`. compute.threads if it is set. Otherwise learner and
// rollout ranks work in turns, so the learner gets all CPUs and rollout ranks share them; at least 1.
int RankThreads(const RunOptions& options, const RankPlan& plan, int rank, int num_cpus);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_PLAN_H_
