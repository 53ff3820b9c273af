// A model that samples: weights from disk and the rollout engine, for the commands that sample without training.
#ifndef LOCKSTEP_RUNTIME_JOB_SAMPLER_H_
#define LOCKSTEP_RUNTIME_JOB_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/kernels/matmul_backend.h"
#include "model/model_config.h"
#include "rollout/engine.h"
#include "runtime/base/thread_pool.h"
#include "runtime/device/tensor.h"

namespace lockstep::job {

struct SamplerOptions {
  // Compute type: kF32 or kBf16.
  DType dtype = DType::kF32;
  model::MatMulChoice matmul = model::MatMulChoice::kAuto;
  // 0: all CPUs.
  int threads = 0;
  // Completions decoded together at most.
  int32_t max_batch = 64;
  // Prompt and completion together at most; 0: the model's, but not more than 4096, which is what a cache is made for.
  int32_t max_context_tokens = 0;
};

// One thread owns a sampler.
class Sampler {
 public:
  // What LoadModel and Engine::Make say.
  static absl::StatusOr<std::unique_ptr<Sampler>> Load(const std::string& model_path, const SamplerOptions& options,
                                                       rollout::StopWatcherFactory stop_watchers);

  const model::ModelConfig& config() const { return config_; }
  int32_t max_context_tokens() const { return max_context_tokens_; }
  rollout::Engine& engine() { return *engine_; }

 private:
  Sampler(const model::ModelConfig& config, int num_threads) : config_(config), pool_(num_threads) {}

  const model::ModelConfig config_;
  ThreadPool pool_;
  Buffer packed_;
  int32_t max_context_tokens_ = 0;
  std::unique_ptr<rollout::Engine> engine_;
};

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_SAMPLER_H_
