// Prompts sampled and scored: what training and evaluation have in common.
//
// Thread contract: one thread.
#ifndef LOCKSTEP_RUNTIME_JOB_SCORED_SAMPLER_H_
#define LOCKSTEP_RUNTIME_JOB_SCORED_SAMPLER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rollout/rewards/reward.h"
#include "runtime/base/philox.h"
#include "runtime/data/sampling_params.h"
#include "runtime/data/weight_version.h"
#include "runtime/job/generator.h"
#include "runtime/job/prompt_encoder.h"
#include "text/tokenizer.h"

namespace lockstep::job {

// Entry i belongs to prompt i / n, sample i % n.
struct ScoredBatch {
  std::vector<rollout::GenerationResult> results;  // [prompts * n]
  std::vector<std::string> texts;                  // completions without special tokens
  std::vector<rollout::RewardResult> rewards;
  double generate_seconds = 0, score_seconds = 0;
};

class ScoredSampler {
 public:
  // All must outlive it. `seed`: run.seed.
  ScoredSampler(Generator& generator, rollout::Reward& reward, const text::Tokenizer& tokenizer, uint64_t seed)
      : generator_(generator), reward_(reward), tokenizer_(tokenizer), seed_(seed) {}

  // n samples of each prompt. What is drawn depends on seed, purpose, ordinal and sample alone.
  absl::StatusOr<ScoredBatch> Run(absl::Span<const EncodedPrompt> prompts, int32_t n, const SamplingParams& params,
                                  RandomPurpose purpose, const WeightVersion& version,
                                  const std::function<bool()>& stop);

 private:
  Generator& generator_;
  rollout::Reward& reward_;
  const text::Tokenizer& tokenizer_;
  const uint64_t seed_;
  int64_t next_request_ = 1;  // never used twice: an answer that comes late is known as such
};

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_SCORED_SAMPLER_H_
