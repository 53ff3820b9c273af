// What the rank that learns (or evaluates) works with, once all ranks have agreed on the plan and met.
#ifndef LOCKSTEP_RUNTIME_JOB_JOB_PARTS_H_
#define LOCKSTEP_RUNTIME_JOB_JOB_PARTS_H_

#include <memory>

#include "model/load.h"
#include "rollout/engine.h"
#include "runtime/base/thread_pool.h"
#include "runtime/job/generator.h"
#include "runtime/job/options.h"
#include "runtime/job/text_model.h"
#include "transport/weight_channel.h"

namespace lockstep::job {

struct JobParts {
  RunOptions options;
  model::LoadedModel model;
  TextModel text;
  ThreadPool* pool = nullptr;
  std::unique_ptr<transport::WeightPublisher> publisher;
  std::unique_ptr<Generator> generator;  // reads what the publisher publishes
};

rollout::EngineOptions EngineOptionsOf(const RunOptions& options, const model::ModelConfig& config);

// Longest prompt of the data.
int64_t MaxPromptTokens(const RunOptions& options, const model::ModelConfig& config);

// The options' sampling parameters, with the model's own stop ids where they name none.
SamplingParams SamplingOf(const JobParts& parts);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_JOB_PARTS_H_
