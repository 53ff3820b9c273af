#include "runtime/job/job_plan.h"

#include <utility>

#include "model/load.h"
#include "runtime/base/status.h"
#include "runtime/job/sample_limits.h"
#include "runtime/job/yaml_reader.h"

namespace lockstep::job {

absl::StatusOr<JobPlan> MakeJobPlan(const ConfigArgs& args, int num_ranks) {
  ASSIGN_OR_RETURN(Config config, ReadConfig(args.path, args.overrides));
  JobPlan plan;
  plan.options = std::move(config.options);
  ASSIGN_OR_RETURN(plan.ranks, PlanRanks(plan.options, num_ranks));
  absl::StatusOr<model::ModelConfig> model = model::LoadConfig(plan.options.model.path);
  if (!model.ok()) return AddContext(model.status(), "model.path");
  plan.config = *std::move(model);
  ASSIGN_OR_RETURN(plan.engine, EngineOptionsOf(plan.options, plan.config));
  ASSIGN_OR_RETURN(plan.footprint, EstimateFootprint(plan.options, plan.config));
  return plan;
}

}  // namespace lockstep::job
