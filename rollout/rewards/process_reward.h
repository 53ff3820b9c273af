// A user's own reward: a command in any language that reads JSON lines and answers each with a line of its own
// (process_protocol.h):
//
//   in   {"id": "7", "messages": [...], "completion": "...", ... the row's other fields}
//   out  {"id": "7", "reward": 0.5}  or  {"id": "7", "rewards": {"correct": 1, "style": 0.2}}  or
//        {"id": "7", "error": "..."}
//
// Several processes share the work; each has one request at a time. One that dies, stalls past the deadline or answers
// with anything else is ended and started again, and the request is sent again, up to max_attempts times in all; then
// the sample is invalid, with the reason. One that ended between two requests is started again without counting.
// stderr is passed on.
#ifndef LOCKSTEP_ROLLOUT_REWARDS_PROCESS_REWARD_H_
#define LOCKSTEP_ROLLOUT_REWARDS_PROCESS_REWARD_H_

#include <memory>

#include "rollout/rewards/reward.h"

namespace lockstep::rollout {

// Starts the processes: NotFound, PermissionDenied and the like if the command cannot be.
absl::StatusOr<std::unique_ptr<Reward>> MakeProcessReward(const RewardOptions& options);

}  // namespace lockstep::rollout

#endif  // LOCKSTEP_ROLLOUT_REWARDS_PROCESS_REWARD_H_
