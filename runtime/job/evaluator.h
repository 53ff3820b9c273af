// Evaluation on data.eval, in the loop of `train` and as the command `eval`: the same weights give the same numbers in
// both, to the bit.
//
// Thread contract: one thread.
#ifndef LOCKSTEP_RUNTIME_JOB_EVALUATOR_H_
#define LOCKSTEP_RUNTIME_JOB_EVALUATOR_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rollout/rewards/reward.h"
#include "runtime/job/eval_report.h"
#include "runtime/job/options.h"
#include "runtime/job/prompt_encoder.h"
#include "runtime/job/scored_sampler.h"

namespace lockstep::job {

class Evaluator {
 public:
  // Reads data.eval, which must not be empty. Every row is encoded and shown to the reward: what cannot be used is an
  // error here, before anything is sampled. A prompt that is too long is an error or left out, by data.too_long.
  // `sampling`: of the run; eval.temperature replaces its own.
  static absl::StatusOr<Evaluator> Open(const RunOptions& options, const PromptEncoder& encoder,
                                        const rollout::Reward& reward, const SamplingParams& sampling);

  // Draws from random numbers that training never uses, the same every time. Cancelled if `stop` turned true.
  absl::StatusOr<EvalReport> Run(ScoredSampler& sampler, const WeightVersion& version,
                                 const std::function<bool()>& stop) const;

 private:
  Evaluator() = default;

  int32_t n_ = 1;
  SamplingParams params_;
  std::vector<EncodedPrompt> prompts_;
};

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_EVALUATOR_H_
