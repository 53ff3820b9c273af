// A sample as the run folder keeps it, for people and for later analysis: one JSON object.
//
//   "ordinal", "sample"                 which prompt of the stream, which sample of its group
//   "prompt_ids", "prompt_text"         everything before the first sampled token
//   "completion_ids"                    from the first sampled token on; in several turns also what stands between
//   "sources"                           [["prompt", 12], ["model", 24], ...]: who wrote the tokens of prompt and
//                                       completion, as runs; "model copy": re-rendered, context only
//   "rollout_logprobs",                 parallel to completion_ids; null where the token was not sampled, or its
//   "weight_versions"                   log-prob is not known (absent is not 0)
//   "text", "finish_reason"             the completion as the reward saw it
//   "reward", "parts", "valid", "invalid_reason", "advantage"
//   "off_path_tokens"                   only if the tree has branches that its last path leaves out: their tokens
#ifndef LOCKSTEP_RUNTIME_JOB_TRAJECTORY_LOG_H_
#define LOCKSTEP_RUNTIME_JOB_TRAJECTORY_LOG_H_

#include <cstdint>
#include <string>

#include "rollout/rewards/reward.h"
#include "runtime/base/json.h"
#include "runtime/data/token_tree.h"

namespace lockstep::job {

// Points to what it describes.
struct Trajectory {
  int64_t ordinal = 0;
  int32_t sample_id = 0;
  const TokenTree* tree = nullptr;  // not empty
  std::string prompt_text;
  std::string text;
  const rollout::RewardResult* reward = nullptr;
  double advantage = 0;
};

Json ToJson(const Trajectory& trajectory);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_TRAJECTORY_LOG_H_
