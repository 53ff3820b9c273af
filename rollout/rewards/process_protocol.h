// The lines between the run and a process reward (process_reward.h). Pure functions.
//
//   request = {"id": text, "messages": list, "completion": text, "finish_reason": "stop" | "length", ...the row's other
//              fields}
//             A row with "prompt" keeps it, and "messages" holds it as one message of the user. A row's own "id",
//             "completion" and "finish_reason" are hidden by the request's.
//   answer  = {"id": text, "reward": number}
//           | {"id": text, "rewards": {name: number, ...}}      the reward is their weighted sum
//           | {"id": text, "error": text}                       the sample is invalid, for this reason
//             Other fields are passed over; a null counts as absent; an error goes before rewards.
#ifndef LOCKSTEP_ROLLOUT_REWARDS_PROCESS_PROTOCOL_H_
#define LOCKSTEP_ROLLOUT_REWARDS_PROCESS_PROTOCOL_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "rollout/rewards/reward.h"

namespace lockstep::rollout {

// InvalidArgument if the row is not an object.
absl::StatusOr<std::string> ToRequestLine(const RewardRequest& request);

// InvalidArgument for a line that does not answer the request `id` in this form: the process cannot be trusted any
// more. A number that is not finite (also as NaN or Infinity, which JSON does not have and Python writes) is an answer,
// whose sample is invalid.
absl::StatusOr<RewardResult> ParseAnswer(const std::string& line, const std::string& id,
                                         const std::map<std::string, double>& weights);

}  // namespace lockstep::rollout

#endif  // LOCKSTEP_ROLLOUT_REWARDS_PROCESS_PROTOCOL_H_
