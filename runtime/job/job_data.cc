#include "runtime/job/job_data.h"

#include <utility>

#include "runtime/base/status.h"
#include "runtime/job/sample_limits.h"

namespace lockstep::job {
namespace {

// What no step could use is an error before the first one.
absl::Status CheckRows(const RunOptions& options, const PromptEncoder& encoder, const rollout::Reward& reward,
                       source::PromptSource& source) {
  bool any_fits = false;
  for (int64_t row = 0; row < source.num_rows(); ++row) {
    ASSIGN_OR_RETURN(const EncodedPrompt prompt, encoder.Encode(source.At(row)));
    if (options.data.too_long == TooLong::kError) RETURN_IF_ERROR(encoder.CheckLength(prompt));
    RETURN_IF_ERROR(AddContext(reward.CheckRow(prompt.prompt.row_json), prompt.prompt.location));
    any_fits = any_fits || encoder.Fits(prompt);
  }
  if (any_fits) return absl::OkStatus();
  return absl::InvalidArgumentError("every prompt of data.train is longer than data.max_prompt_tokens");
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobData>> OpenJobData(const RunOptions& options, const model::ModelConfig& config,
                                                     bool train) {
  auto data = std::make_unique<JobData>();
  ASSIGN_OR_RETURN(data->text, LoadTextModel(options.model.path));
  RETURN_IF_ERROR(CheckVocabulary(*data->text.tokenizer, config));
  ASSIGN_OR_RETURN(const SampleLimits limits, LimitsOf(options, config));
  data->encoder = std::make_unique<PromptEncoder>(data->text, limits.prompt_tokens);
  data->sampling = options.rollout.sampling;
  if (data->sampling.stop_ids.empty()) data->sampling.stop_ids = DefaultStopIds(*data->text.tokenizer, config);
  ASSIGN_OR_RETURN(data->reward, rollout::MakeReward(options.reward));
  if (train) {
    ASSIGN_OR_RETURN(source::PromptSource source,
                     source::PromptSource::Open({options.data.train, options.data.shuffle, options.run.seed}));
    RETURN_IF_ERROR(CheckRows(options, *data->encoder, *data->reward, source));
    data->train = std::make_unique<source::PromptSource>(std::move(source));
  }
  if (!train || !options.data.eval.empty()) {
    ASSIGN_OR_RETURN(Evaluator evaluator, Evaluator::Open(options, *data->encoder, *data->reward, data->sampling));
    data->evaluator = std::make_unique<Evaluator>(std::move(evaluator));
  }
  return data;
}

}  // namespace lockstep::job
