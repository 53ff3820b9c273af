// The built-in rewards, one .cc file each; see RewardOptions::kind for what each does. Pure functions of a request.
#ifndef LOCKSTEP_ROLLOUT_REWARDS_BUILTIN_REWARDS_H_
#define LOCKSTEP_ROLLOUT_REWARDS_BUILTIN_REWARDS_H_

#include <memory>

#include "rollout/rewards/reward.h"

namespace lockstep::rollout {

std::unique_ptr<Reward> MakeArithmeticReward(const RewardOptions& options);  // parts: correct, and alone with a bonus
std::unique_ptr<Reward> MakeJsonObjectReward(const RewardOptions& options);
// InvalidArgument for an expression that does not compile, naming the place.
absl::StatusOr<std::unique_ptr<Reward>> MakeExactMatchReward(const RewardOptions& options);

}  // namespace lockstep::rollout

#endif  // LOCKSTEP_ROLLOUT_REWARDS_BUILTIN_REWARDS_H_
