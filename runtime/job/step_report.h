// What one training step found, as metrics (metrics.h has the names). Pure arithmetic.
#ifndef LOCKSTEP_RUNTIME_JOB_STEP_REPORT_H_
#define LOCKSTEP_RUNTIME_JOB_STEP_REPORT_H_

#include <cstdint>
#include <string>

#include "learner/policy_update.h"
#include "runtime/job/metrics.h"
#include "runtime/job/scored_sampler.h"

namespace lockstep::job {

struct SampleStatistics {
  int64_t num_samples = 0;
  int64_t num_invalid = 0;
  std::string invalid_reason;  // of the first invalid sample
  int64_t num_tokens = 0;      // of all completions
  double reward_mean = 0;      // over valid samples, and the deviation with divisor n; 0 if there are none
  double reward_std = 0;
  double mean_tokens = 0;
  double stopped = 0;  // share of completions that ended by themselves
};
SampleStatistics Summarize(const ScoredBatch& batch);

struct StepReport {
  int64_t step = 0;  // steps done, this one included
  SampleStatistics samples;
  learner::UpdateMetrics update;
  double learning_rate = 0;  // of the first optimizer step
  std::string weight_hash;   // after the step
  double flip_us = 0;        // hand-off of the new weights
  double generate_seconds = 0, score_seconds = 0, train_seconds = 0, publish_seconds = 0, step_seconds = 0;

  double tokens_per_second() const { return static_cast<double>(samples.num_tokens) / step_seconds; }
  double entropy() const;  // mean over the trained tokens
};
StepMetrics ToMetrics(const StepReport& report);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_STEP_REPORT_H_
