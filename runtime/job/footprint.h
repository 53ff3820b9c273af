// What a run will need: bytes of each rank and floating-point operations of a step, from the configuration of the model
// and the options alone. Nothing is loaded.
//
// Upper bounds: prompts and completions of full length. A step's prompt is computed once for its whole group.
// Operations are counted with prompts of 256 tokens where data.max_prompt_tokens is not set, since few are as long as
// the context.
#ifndef LOCKSTEP_RUNTIME_JOB_FOOTPRINT_H_
#define LOCKSTEP_RUNTIME_JOB_FOOTPRINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/model_config.h"
#include "runtime/job/options.h"
#include "runtime/job/sample_limits.h"

namespace lockstep::job {

struct Footprint {
  // Who holds a piece of memory: the learner, each rollout rank, or one shared copy for a node.
  enum class Holder : uint8_t { kLearner, kRollout, kNode };
  struct Memory {
    const char* what;
    Holder holder;
    int64_t bytes;
  };
  int64_t num_parameters = 0;
  SampleLimits limits;
  int64_t prompt_tokens = 0;  // of the prompts whose operations are counted: a guess where none is written
  int64_t kv_blocks = 0;      // of 64 positions, for each rollout rank
  std::vector<Memory> memory;
  double sample_flops = 0;  // a step's sampling: prefill and decode
  double train_flops = 0;   // a step's forward and backward passes, recompute and reference included

  int64_t BytesOf(Holder holder) const;
};

// InvalidArgument: prompt and completion do not fit into the model's context, or the cache cannot hold one sample.
absl::StatusOr<Footprint> EstimateFootprint(const RunOptions& options, const model::ModelConfig& config);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_FOOTPRINT_H_
