#include "runtime/job/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace lockstep::job {
namespace {

absl::Status NoRoom(const std::string& message) { return absl::InvalidArgumentError(message); }

RankPlan AutomaticPlan(int num_ranks) {
  RankPlan plan;
  plan.roles.assign(static_cast<size_t>(num_ranks), Role::kRollout);
  plan.roles[0] = num_ranks == 1 ? Role::kColocated : Role::kLearner;
  for (int rank = num_ranks == 1 ? 0 : 1; rank < num_ranks; ++rank) plan.rollout_ranks.push_back(rank);
  return plan;
}

absl::Status CheckRanksExist(const char* path, const std::vector<int32_t>& ranks, int num_ranks) {
  for (int32_t rank : ranks) {
    if (rank >= num_ranks) {
      return NoRoom(absl::StrCat(path, " names rank ", rank, ", but there are ranks 0 to ", num_ranks - 1,
                                 " only: start ", rank + 1, " ranks (mpirun -np) or change the roles"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RankPlan> WrittenPlan(const RoleOptions& roles, int num_ranks) {
  RETURN_IF_ERROR(CheckRanksExist("roles.learner", roles.learner, num_ranks));
  RETURN_IF_ERROR(CheckRanksExist("roles.rollout", roles.rollout, num_ranks));
  if (roles.learner.size() > 1) {
    return NoRoom(absl::StrCat("roles.learner is [", absl::StrJoin(roles.learner, ", "),
                               "]: one rank learns; sharding it over several is yet to come"));
  }
  RankPlan plan;
  plan.learner_rank = roles.learner[0];
  plan.rollout_ranks.assign(roles.rollout.begin(), roles.rollout.end());
  std::sort(plan.rollout_ranks.begin(), plan.rollout_ranks.end());
  plan.roles.assign(static_cast<size_t>(num_ranks), Role::kRollout);
  const bool learner_samples =
      std::binary_search(plan.rollout_ranks.begin(), plan.rollout_ranks.end(), plan.learner_rank);
  if (learner_samples && num_ranks > 1) {
    return NoRoom(absl::StrCat("roles.learner and roles.rollout both name rank ", plan.learner_rank,
                               ": a rank does both only when it is the only one; take it out of roles.rollout"));
  }
  plan.roles[plan.learner_rank] = learner_samples ? Role::kColocated : Role::kLearner;
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (rank != plan.learner_rank && !std::binary_search(plan.rollout_ranks.begin(), plan.rollout_ranks.end(), rank)) {
      return NoRoom(absl::StrCat("rank ", rank, " of ", num_ranks,
                                 " has no role: start fewer ranks (mpirun -np) or add it to roles.rollout"));
    }
  }
  return plan;
}

}  // namespace

const char* RoleName(Role role) {
  switch (role) {
    case Role::kColocated:
      return "colocated";
    case Role::kLearner:
      return "learner";
    case Role::kRollout:
      return "rollout";
  }
  return "?";
}

absl::StatusOr<RankPlan> PlanRanks(const RunOptions& options, int num_ranks) {
  if (num_ranks < 1) return NoRoom(absl::StrCat(num_ranks, " ranks: there must be one at least"));
  RETURN_IF_ERROR(options.roles.Validate());
  RankPlan plan;
  if (options.roles.learner.empty()) {
    plan = AutomaticPlan(num_ranks);
  } else {
    ASSIGN_OR_RETURN(plan, WrittenPlan(options.roles, num_ranks));
  }
  const int num_rollout = static_cast<int>(plan.rollout_ranks.size());
  if (num_rollout > options.rollout.prompts_per_step) {
    return NoRoom(absl::StrCat(num_ranks, " ranks are too many: ", num_rollout, " rollout ranks share ",
                               options.rollout.prompts_per_step,
                               " prompts a step; start fewer (mpirun -np) or raise rollout.prompts_per_step"));
  }
  return plan;
}

int RankThreads(const RunOptions& options, const RankPlan& plan, int rank, int num_cpus) {
  CHECK_GE(rank, 0);
  CHECK_LT(rank, plan.num_ranks());
  if (options.compute.threads > 0) return options.compute.threads;
  const int sharing = plan.roles[rank] == Role::kRollout ? static_cast<int>(plan.rollout_ranks.size()) : 1;
  return std::max(1, num_cpus / sharing);
}

}  // namespace lockstep::job
