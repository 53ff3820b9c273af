#include "rollout/rewards/reward.h"

#include "absl/strings/str_cat.h"
#include "rollout/rewards/builtin_rewards.h"
#include "rollout/rewards/process_reward.h"
#include "runtime/base/status.h"

namespace lockstep::rollout {

absl::Status RewardOptions::Validate() const {
  if (kind == "process" && command.empty())
    return absl::InvalidArgumentError("reward.command is empty: a process reward needs a command");
  if (num_processes < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("reward.num_processes is ", num_processes, ": it must be at least 1"));
  if (deadline_ms < 1)
    return absl::InvalidArgumentError(absl::StrCat("reward.deadline_ms is ", deadline_ms, ": it must be at least 1"));
  if (max_attempts < 1)
    return absl::InvalidArgumentError(absl::StrCat("reward.max_attempts is ", max_attempts, ": it must be at least 1"));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Reward>> MakeReward(const RewardOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  if (options.kind == "arithmetic") return MakeArithmeticReward(options);
  if (options.kind == "json_object") return MakeJsonObjectReward(options);
  if (options.kind == "exact_match") return MakeExactMatchReward(options);
  if (options.kind == "process") return MakeProcessReward(options);
  return absl::InvalidArgumentError(
      absl::StrCat("reward.kind is '", options.kind, "': it must be arithmetic, json_object, exact_match or process"));
}

}  // namespace lockstep::rollout
