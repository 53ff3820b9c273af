#include "runtime/job/evaluator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/source/prompt_source.h"

namespace lockstep::job {
absl::StatusOr<Evaluator> Evaluator::Open(const RunOptions& options, const PromptEncoder& encoder,
                                          const rollout::Reward& reward, const SamplingParams& sampling) {
  if (options.data.eval.empty()) {
    return absl::InvalidArgumentError("data.eval is empty: name the files to evaluate on");
  }
  ASSIGN_OR_RETURN(source::PromptSource source,
                   source::PromptSource::Open({options.data.eval, /*shuffle=*/false, options.run.seed}));
  Evaluator evaluator;
  evaluator.n_ = options.eval.n;
  evaluator.params_ = sampling;
  evaluator.params_.temperature = options.eval.temperature;
  const int64_t max_prompts = options.eval.max_prompts;
  const int64_t count = max_prompts > 0 ? std::min(max_prompts, source.num_rows()) : source.num_rows();
  for (int64_t row = 0; row < count; ++row) {
    ASSIGN_OR_RETURN(EncodedPrompt prompt, encoder.Encode(source.At(row)));
    if (options.data.too_long == TooLong::kError) RETURN_IF_ERROR(encoder.CheckLength(prompt));
    if (!encoder.Fits(prompt)) continue;
    RETURN_IF_ERROR(AddContext(reward.CheckRow(prompt.prompt.row_json), prompt.prompt.location));
    evaluator.prompts_.push_back(std::move(prompt));
  }
  if (evaluator.prompts_.empty()) {
    return absl::InvalidArgumentError("every prompt of data.eval is longer than data.max_prompt_tokens");
  }
  const int64_t dropped = count - static_cast<int64_t>(evaluator.prompts_.size());
  if (dropped > 0) LogWarning(absl::StrCat(dropped, " of ", count, " prompts of data.eval are too long: left out"));
  return evaluator;
}

absl::StatusOr<EvalReport> Evaluator::Run(ScoredSampler& sampler, const WeightVersion& version,
                                          const std::function<bool()>& stop) const {
  ASSIGN_OR_RETURN(const ScoredBatch batch, sampler.Run(prompts_, n_, params_, RandomPurpose::kEval, version, stop));
  std::vector<EvalSample> samples;
  for (size_t i = 0; i < batch.results.size(); ++i) {
    const SampledRun& run = batch.results[i].run;
    samples.push_back({.reward = batch.rewards[i].reward,
                       .error = batch.rewards[i].error,
                       .num_tokens = static_cast<int64_t>(run.tokens.size()),
                       .stopped = run.finish_reason == FinishReason::kStop});
  }
  return MakeEvalReport(samples, n_);
}

}  // namespace lockstep::job
