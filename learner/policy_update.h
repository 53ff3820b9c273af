// One training step: groups of scored samples in, updated weights out.
//
//   advantages -> micro-batches (whole groups, in order, under a token budget) -> per optimizer step: forward, loss,
//   backward -> AdamW
//
// `old_logprobs` belong to the weights before the first optimizer step. With one optimizer step its own forward pass
// gives them; with several, the later mini-batches take one extra forward pass first. The bit check compares them with
// what the sampler reported, for every token whose weight version is the learner's, before anything is applied.
#ifndef LOCKSTEP_LEARNER_POLICY_UPDATE_H_
#define LOCKSTEP_LEARNER_POLICY_UPDATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algos/advantages.h"
#include "algos/policy_loss.h"
#include "learner/learner.h"
#include "learner/packing.h"
#include "runtime/data/token_tree.h"

namespace lockstep::learner {

struct ScoredSample {
  TokenTree tree;
  int32_t sample_id = 0;
  double reward = 0;
  std::map<std::string, double> parts;  // named components; gdpo normalises each on its own
  bool valid = true;                    // an invalid sample is left out of the group's baseline and is not trained
  double advantage = 0;                 // filled by the update
};

struct ScoredGroup {
  int64_t ordinal = 0;
  std::vector<ScoredSample> samples;
};

enum class BitCheck : uint8_t { kError, kWarn, kOff };

struct PolicyUpdateOptions {
  algos::AdvantageOptions advantage;           // part_weights is filled from the next field
  std::map<std::string, double> part_weights;  // gdpo: weight of each named reward part; 1 where it is not named
  algos::PolicyLossOptions loss;
  // Optimizer steps of one step; groups are dealt out in order, as evenly as they go.
  int mini_batches = 1;
  // Tokens of one micro-batch. A single group above it is cut into its samples.
  int64_t micro_batch_tokens = 4096;
  PackingStrategy packing = PackingStrategy::kSequential;
  BitCheck bit_check = BitCheck::kError;
};

struct UpdateMetrics {
  algos::PolicyLossResult loss;  // sums over the optimizer steps
  double grad_norm = 0;          // largest of the optimizer steps
  double entropy_sum = 0;
  int64_t loss_tokens = 0;
  int64_t computed_tokens = 0;  // rows of all forests: shared prompts once
  int64_t checked_tokens = 0;   // bit check: tokens compared, and those that differed
  int64_t differing_tokens = 0;
  int skipped_optimizer_steps = 0;
  int optimizer_steps = 0;
};

class PolicyUpdate {
 public:
  // reference: packed weights of the frozen reference, or nullptr where the loss needs none.
  PolicyUpdate(Learner& learner, const PolicyUpdateOptions& options, const uint8_t* reference);

  // `version`: of the learner's current weights, whose packed form is `packed`. `publish` is called after each
  // optimizer step but the last: it packs the new weights and hands them to the learner. DataLoss: the bit check failed
  // (step, prompt, sample, position and both values are named) and nothing was applied.
  absl::StatusOr<UpdateMetrics> Run(std::vector<ScoredGroup>& groups, int64_t version, const uint8_t* packed,
                                    const std::function<double(int mini_batch)>& learning_rate,
                                    const std::function<absl::Status()>& renew_weights);

 private:
  struct MicroBatch {
    FlatForest forest;
    std::vector<int64_t> row_begin;  // loss rows of each sample
    std::vector<float> advantages;   // per loss row
    std::vector<float> old_logprobs, ref_logprobs;
    std::vector<std::string> sample_names;  // "prompt 3 sample 1", for messages
  };
  absl::Status ComputeAdvantages(std::vector<ScoredGroup>& groups);
  std::vector<MicroBatch> Cut(const std::vector<ScoredGroup>& groups, size_t begin, size_t end) const;
  void Append(const ScoredGroup& group, absl::Span<const ScoredSample* const> samples, MicroBatch& batch) const;
  absl::Status Check(const MicroBatch& batch, absl::Span<const float> logprobs, int64_t version,
                     UpdateMetrics& metrics) const;
  // num_samples: of the mini-batch, those without a token to train included.
  absl::Status OptimizerStep(std::vector<MicroBatch>& batches, int64_t num_samples, int64_t version, double lr,
                             UpdateMetrics& metrics);

  Learner& learner_;
  const PolicyUpdateOptions options_;
  const uint8_t* const reference_;
};

}  // namespace lockstep::learner

#endif  // LOCKSTEP_LEARNER_POLICY_UPDATE_H_
