// The learner of one rank: master weights, gradient sums, optimizer, and the forward and backward passes that feed
// them.
//
//   auto learner = *Learner::Make(std::move(model), options, pool);
//   learner->Pack(slot.bytes.data());  learner->UseWeights(slot.bytes.data());     // published form, read by forward
//   per optimizer step:
//     learner->BeginStep(num_micro_batches);
//     per micro-batch: learner->AddGradient(forest, loss);
//     StepResult result = learner->FinishStep(lr);                                 // clip, AdamW; then Pack again
//
// Bit rules: a micro-batch's gradient depends on its forest and loss alone; micro-batches add up as integers
// (exact_sum.h), so their order does not matter; the norm is a sum of fixed blocks in fixed order. What a rank computes
// does not depend on its threads.
//
// Master weights are float32. The forward pass reads the packed form that rollout workers map too: what is trained is
// what sampled.
//
// Thread contract: one thread owns a Learner; it uses the pool inside.
#ifndef LOCKSTEP_LEARNER_LEARNER_H_
#define LOCKSTEP_LEARNER_LEARNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "learner/adamw.h"
#include "model/kernels/matmul_backend.h"
#include "model/load.h"
#include "model/training_pass.h"
#include "runtime/base/thread_pool.h"
#include "runtime/data/token_tree.h"
#include "runtime/data/weight_version.h"

namespace lockstep::learner {

struct LearnerConfig {
  DType dtype = DType::kBf16;  // compute type
  model::MatMulBackend matmul = model::MatMulBackend::kOwn;
  model::Recompute recompute = model::Recompute::kNone;
  int64_t max_positions = 2048;  // longest path
  AdamWOptions adamw;
  double max_grad_norm = 1.0;  // clips the global norm; 0: no clipping
};

// Gradient of the loss of one micro-batch by the log-probs of its loss rows. `d_logprobs` comes zeroed.
using LossFunction = absl::FunctionRef<void(absl::Span<const float> logprobs, absl::Span<const float> entropies,
                                            absl::Span<float> d_logprobs)>;

enum class StepOutcome : uint8_t {
  kUpdated,
  kSkipped,   // a gradient or its norm was not finite: nothing changed
  kOverflow,  // a contribution was too large for the quantum, which is now 2^10 coarser: add the same micro-batches
              // again
};

struct StepResult {
  StepOutcome outcome = StepOutcome::kUpdated;
  double grad_norm = 0;  // before clipping
  double clip_scale = 1;
};

class Learner {
 public:
  static absl::StatusOr<std::unique_ptr<Learner>> Make(model::LoadedModel model, const LearnerConfig& config,
                                                       ThreadPool& pool);
  virtual ~Learner() = default;

  virtual const model::ModelConfig& model_config() const = 0;
  virtual const model::Parameters& parameters() const = 0;
  virtual uint64_t WeightHash() const = 0;

  // Bytes of the packed form, and packing of the current weights into such a block (64-byte aligned).
  virtual int64_t packed_bytes() const = 0;
  virtual void Pack(uint8_t* packed) = 0;
  // What forward passes read from now on; it must hold the current weights, and stay. Also renews the private
  // transposed form.
  virtual void UseWeights(const uint8_t* packed) = 0;

  // Log-probs (and entropies, unless empty) of the forest's loss rows, without gradient, under weights in packed form.
  virtual void LogProbs(const uint8_t* packed, const FlatForest& forest, absl::Span<float> logprobs,
                        absl::Span<float> entropies) = 0;

  virtual void BeginStep(int64_t num_micro_batches) = 0;
  virtual void AddGradient(const FlatForest& forest, LossFunction loss) = 0;
  virtual StepResult FinishStep(double lr) = 0;

  virtual int quantum_log2() const = 0;
};

}  // namespace lockstep::learner

#endif  // LOCKSTEP_LEARNER_LEARNER_H_
