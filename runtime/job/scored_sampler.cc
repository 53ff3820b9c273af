#include "runtime/job/scored_sampler.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace lockstep::job {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsBetween(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace

absl::StatusOr<ScoredBatch> ScoredSampler::Run(absl::Span<const EncodedPrompt> prompts, int32_t n,
                                               const SamplingParams& params, RandomPurpose purpose,
                                               const WeightVersion& version, const std::function<bool()>& stop) {
  const Clock::time_point start = Clock::now();
  std::vector<rollout::GenerationRequest> requests;
  for (const EncodedPrompt& prompt : prompts) {
    rollout::GenerationRequest& request = requests.emplace_back();
    request.request_id = next_request_++;
    request.prompt_ids = prompt.ids;
    request.num_samples = n;
    request.params = params;
    request.key = {seed_, purpose};
    request.ordinal = prompt.prompt.ordinal;
  }
  ScoredBatch batch;
  ASSIGN_OR_RETURN(batch.results, generator_.Generate(requests, version, stop));
  const Clock::time_point generated = Clock::now();
  batch.generate_seconds = SecondsBetween(start, generated);

  std::vector<rollout::RewardRequest> questions;
  for (size_t i = 0; i < batch.results.size(); ++i) {
    const SampledRun& run = batch.results[i].run;
    std::vector<int32_t> ids;
    for (const SampledToken& token : run.tokens) ids.push_back(token.id);
    const Prompt& prompt = prompts[i / n].prompt;
    batch.texts.push_back(tokenizer_.Decode(ids, /*skip_special_tokens=*/true));
    questions.push_back({absl::StrCat(prompt.ordinal, "/", run.sample_id), prompt.row_json, batch.texts.back(),
                         FinishReasonName(run.finish_reason)});
  }
  batch.rewards = reward_.Score(questions);
  batch.score_seconds = SecondsBetween(generated, Clock::now());
  return batch;
}

}  // namespace lockstep::job
