// What a job reads apart from the weights: tokenizer, prompts, and the reward that scores them. Opening it finds every
// error of the user's data, before the weights are loaded.
#ifndef LOCKSTEP_RUNTIME_JOB_JOB_DATA_H_
#define LOCKSTEP_RUNTIME_JOB_JOB_DATA_H_

#include <memory>

#include "absl/status/statusor.h"
#include "model/model_config.h"
#include "rollout/rewards/reward.h"
#include "runtime/data/sampling_params.h"
#include "runtime/job/evaluator.h"
#include "runtime/job/options.h"
#include "runtime/job/prompt_encoder.h"
#include "runtime/job/text_model.h"
#include "runtime/source/prompt_source.h"

namespace lockstep::job {

// The parts point to each other: it stays where it is.
struct JobData {
  TextModel text;
  std::unique_ptr<PromptEncoder> encoder;
  std::unique_ptr<rollout::Reward> reward;
  SamplingParams sampling;  // of the rollout section, with the model's own stop ids where it names none
  std::unique_ptr<source::PromptSource> train;
  std::unique_ptr<Evaluator> evaluator;  // nullptr without data.eval
};

// `train`: opens data.train too; otherwise data.eval must not be empty. InvalidArgument with file and line: a row that
// is no prompt, that is too long (data.too_long: error), that the reward could never score.
absl::StatusOr<std::unique_ptr<JobData>> OpenJobData(const RunOptions& options, const model::ModelConfig& config,
                                                     bool train);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_JOB_DATA_H_
