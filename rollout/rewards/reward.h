// Rewards: what a completion is worth.
//
// A new reward is one file: implement Reward, and name it in MakeReward (reward.cc). Users' own rewards need no C++:
// see process_reward.h.
//
// Thread contract: one thread uses a reward.
#ifndef LOCKSTEP_ROLLOUT_REWARDS_REWARD_H_
#define LOCKSTEP_ROLLOUT_REWARDS_REWARD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lockstep::rollout {

struct RewardRequest {
  std::string id;             // unique in its batch
  std::string row_json;       // the data row: "messages" or "prompt" and the task's own fields
  std::string completion;     // text of the completion, without special tokens
  std::string finish_reason;  // "stop" or "length"
};

struct RewardResult {
  double reward = 0;
  std::map<std::string, double> parts;  // named components, if the reward has such
  std::string error;                    // not empty: the sample is invalid, for this reason
};

class Reward {
 public:
  virtual ~Reward() = default;
  // One result per request, in order.
  virtual std::vector<RewardResult> Score(absl::Span<const RewardRequest> requests) = 0;
};

struct RewardOptions {
  // arithmetic: the last number of the completion equals the row's answer. json_object: the completion is one JSON
  // object (with the row's "required_keys"). exact_match: what `regex` extracts (its first group, or the match; without
  // regex the trimmed text) equals the row's answer. process: the user's own command.
  std::string kind = "arithmetic";
  std::string answer_field = "answer";
  std::string regex;
  // arithmetic: added if the completion is the number alone.
  double format_bonus = 0;
  std::vector<std::string> command;
  int32_t num_processes = 1;
  // One request may take so long before its process is restarted.
  int64_t deadline_ms = 30'000;
  int32_t max_attempts = 2;
  // process: weights of named rewards; those not named weigh 1.
  std::map<std::string, double> weights;
  absl::Status Validate() const;
};

absl::StatusOr<std::unique_ptr<Reward>> MakeReward(const RewardOptions& options);

}  // namespace lockstep::rollout

#endif  // LOCKSTEP_ROLLOUT_REWARDS_REWARD_H_
