// A user's own reward: a command in any language that reads JSON lines and answers them.
//
//   in   {"id": "7", "messages": [...], "completion": "...", ... the row's other fields}
//   out  {"id": "7", "reward": 0.5}   or   {"id": "7", "rewards": {"correct": 1, "style": 0.2}}   or   {"id": "7",
//   "error": "..."}
//
// Several processes share the work. One that dies, stalls past the deadline or answers nonsense is ended and started
// again, and the request is sent again; after max_attempts the sample is invalid, with the reason.
#ifndef LOCKSTEP_ROLLOUT_REWARDS_PROCESS_REWARD_H_
#define LOCKSTEP_ROLLOUT_REWARDS_PROCESS_REWARD_H_

#include <memory>

#include "rollout/rewards/reward.h"

namespace lockstep::rollout {

absl::StatusOr<std::unique_ptr<Reward>> MakeProcessReward(const RewardOptions& options);

}  // namespace lockstep::rollout

#endif  // LOCKSTEP_ROLLOUT_REWARDS_PROCESS_REWARD_H_
