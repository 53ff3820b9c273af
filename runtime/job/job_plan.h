// What a job will do, known before anything large is allocated: `plan` prints it, `train` and `eval` follow it, and all
// of them refuse the same things with the same words.
#ifndef LOCKSTEP_RUNTIME_JOB_JOB_PLAN_H_
#define LOCKSTEP_RUNTIME_JOB_JOB_PLAN_H_

#include "absl/status/statusor.h"
#include "model/model_config.h"
#include "rollout/engine.h"
#include "runtime/job/commands.h"
#include "runtime/job/footprint.h"
#include "runtime/job/options.h"
#include "runtime/job/plan.h"

namespace lockstep::job {

struct JobPlan {
  RunOptions options;
  RankPlan ranks;
  model::ModelConfig config;
  rollout::EngineOptions engine;
  Footprint footprint;
};

// Reads the configuration and the model's config.json (or GGUF header). InvalidArgument and the like name what cannot
// be.
absl::StatusOr<JobPlan> MakeJobPlan(const ConfigArgs& args, int num_ranks);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_JOB_PLAN_H_
