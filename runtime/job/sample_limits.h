// How long a sample may get, and the engine that this takes: one rule for `plan`, `train` and `eval`.
//
//   completion   rollout.max_tokens
//   prompt       data.max_prompt_tokens, or what the completion leaves of the model's context, at most 4096
//   context      both together
//   cache        rollout.kv_blocks; or rollout.kv_memory_mb; or max_batch samples of full length, at most 4096 blocks
//
// A default gives way where it has to; what the user wrote is taken as it is or refused.
#ifndef LOCKSTEP_RUNTIME_JOB_SAMPLE_LIMITS_H_
#define LOCKSTEP_RUNTIME_JOB_SAMPLE_LIMITS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "model/model_config.h"
#include "rollout/engine.h"
#include "runtime/job/options.h"

namespace lockstep::job {

struct SampleLimits {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t context_tokens() const { return prompt_tokens + completion_tokens; }
};

// InvalidArgument: prompt and completion do not fit into the model's context.
absl::StatusOr<SampleLimits> LimitsOf(const RunOptions& options, const model::ModelConfig& config);

// InvalidArgument: the same, or a cache that cannot hold one sample of full length.
absl::StatusOr<rollout::EngineOptions> EngineOptionsOf(const RunOptions& options, const model::ModelConfig& config);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_SAMPLE_LIMITS_H_
