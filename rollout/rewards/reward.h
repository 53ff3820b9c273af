// Rewards: what a completion is worth.
//
// A new reward is one file: derive from SampleReward (or from Reward, to see a batch at once), declare its maker in
// builtin_rewards.h and name it in MakeReward (reward.cc). Users' own rewards need no C++: see process_reward.h.
//
// Thread contract: one thread at a time uses a reward.
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
  double reward = 0;                    // finite
  std::map<std::string, double> parts;  // named components, if the reward has such; finite
  std::string error;                    // not empty: the sample is invalid, for this reason; then reward is 0, no parts
};

class Reward {
 public:
  virtual ~Reward() = default;

  // One result per request, in order. What goes wrong with a sample is that sample's error, never the batch's.
  virtual std::vector<RewardResult> Score(absl::Span<const RewardRequest> requests) = 0;

  // InvalidArgument if no completion of this data row could ever be scored: known before anything is sampled.
  virtual absl::Status CheckRow(const std::string& row_json) const;
};

// A reward that looks at one sample at a time. An error of ScoreSample becomes that sample's.
class SampleReward : public Reward {
 public:
  std::vector<RewardResult> Score(absl::Span<const RewardRequest> requests) final;

 private:
  virtual absl::StatusOr<RewardResult> ScoreSample(const RewardRequest& request) const = 0;
};

struct RewardOptions {
  // arithmetic: the last number of the completion equals the row's answer. json_object: the completion is one JSON
  // object (with the row's "required_keys"). exact_match: what `regex` extracts (its first group, or the match; without
  // regex the trimmed text) equals the row's answer. process: the user's own command.
  std::string kind = "arithmetic";
  // arithmetic, exact_match: the row's field with the answer.
  std::string answer_field = "answer";
  // exact_match: PCRE2 syntax. The last match counts, since models state their answer at the end.
  std::string regex;
  // arithmetic: added if the completion is the number alone. 0: being right is all that counts.
  double format_bonus = 0;
  // process: program and arguments.
  std::vector<std::string> command;
  // process: how many run at the same time. One, because many users' scripts start threads of their own.
  int32_t num_processes = 1;
  // process: one request may take so long before its process is restarted.
  int64_t deadline_ms = 30'000;
  // process: how often a request is sent before its sample counts as invalid. Twice: a process that died of another
  // sample's leftovers gets a fresh start, one that dies of this sample does not hold up the batch.
  int32_t max_attempts = 2;
  // process: weights of named rewards in the sum; those not named weigh 1.
  std::map<std::string, double> weights;
  // process: the command that becomes the child (process::RunShim). Empty: this program's own "child-exec".
  std::vector<std::string> shim;
  absl::Status Validate() const;
};

// InvalidArgument for options that cannot be used; NotFound and the like for a command that cannot be started.
absl::StatusOr<std::unique_ptr<Reward>> MakeReward(const RewardOptions& options);

}  // namespace lockstep::rollout

#endif  // LOCKSTEP_ROLLOUT_REWARDS_REWARD_H_
