// The training run of the learner rank: sample, score, train, publish, report; evaluation before, in and after the
// loop.
#ifndef LOCKSTEP_RUNTIME_JOB_TRAINER_H_
#define LOCKSTEP_RUNTIME_JOB_TRAINER_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "model/load.h"
#include "runtime/base/thread_pool.h"
#include "runtime/job/generator.h"
#include "runtime/job/options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "transport/weight_channel.h"

namespace lockstep::job {

// Text side of a model.
struct TextModel {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;  // nullptr if the model has none: only "prompt" rows then
};
absl::StatusOr<TextModel> LoadTextModel(const std::string& path);

// Stop texts of a completion, watched in its decoded text.
rollout::StopWatcherFactory StopWatchers(const text::Tokenizer& tokenizer);

DType ComputeDType(const RunOptions& options);
rollout::EngineOptions EngineOptionsOf(const RunOptions& options, const model::ModelConfig& config);

struct TrainerParts {
  RunOptions options;
  model::LoadedModel model;
  TextModel text;
  ThreadPool* pool = nullptr;
  std::unique_ptr<transport::WeightPublisher> publisher;
  std::unique_ptr<Generator> generator;
};

// Runs to the end, or to the step at hand once a stop signal came; exports the model in both cases.
absl::Status Train(TrainerParts parts);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_TRAINER_H_
