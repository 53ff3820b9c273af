// How tokens are drawn from the model's distribution.
#ifndef LOCKSTEP_RUNTIME_DATA_SAMPLING_PARAMS_H_
#define LOCKSTEP_RUNTIME_DATA_SAMPLING_PARAMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lockstep {

struct SamplingParams {
  // Logits are multiplied by 1 / temperature (one float32 rounding). 0 is greedy: the largest logit, ties to the lower
  // id.
  float temperature = 1.0f;
  // Keep the k largest logits; 0 keeps all. Ties at the border: lower id first.
  int32_t top_k = 0;
  // Keep the smallest set of most probable ids whose mass reaches top_p (after top_k); 1 keeps all.
  float top_p = 1.0f;
  // New tokens at most (stop ids count) and at least (stop ids are banned before).
  int32_t max_tokens = 64;
  int32_t min_tokens = 0;
  // Ids that end the completion; the stop id itself is part of it and is trained.
  std::vector<int32_t> stop_ids;
  // Texts that end the completion once its decoded text contains one; the tokens up to there stay.
  std::vector<std::string> stop;

  absl::Status Validate() const;  // says which field, which value and what would be valid
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kAborted };
const char* FinishReasonName(FinishReason reason);  // "none", "stop", "length", "aborted"

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_DATA_SAMPLING_PARAMS_H_
