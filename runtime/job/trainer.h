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
#include "runtime/job/text_model.h"
#include "transport/weight_channel.h"

namespace lockstep::job {

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
