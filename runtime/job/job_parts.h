// What the rank that learns (or evaluates) works with, once all ranks have agreed on the plan and met.
#ifndef LOCKSTEP_RUNTIME_JOB_JOB_PARTS_H_
#define LOCKSTEP_RUNTIME_JOB_JOB_PARTS_H_

#include <memory>

#include "model/load.h"
#include "rollout/engine.h"
#include "runtime/base/thread_pool.h"
#include "runtime/job/generator.h"
#include "runtime/job/job_data.h"
#include "runtime/job/options.h"
#include "transport/weight_channel.h"

namespace lockstep::job {

struct JobParts {
  RunOptions options;
  rollout::EngineOptions engine;
  std::unique_ptr<JobData> data;
  model::LoadedModel model;
  ThreadPool* pool = nullptr;
  std::unique_ptr<transport::WeightPublisher> publisher;
  std::unique_ptr<Generator> generator;  // reads what the publisher publishes
};

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_JOB_PARTS_H_
