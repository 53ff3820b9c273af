// Advantages: how much better a sample did than it should have. Pure functions of rewards.
//
// Estimators (r: reward of a sample, over the valid samples of its group unless said otherwise):
//   grpo                   (r - mean) / (std + eps)                       Shao et al., 2024 (DeepSeekMath)
//   dr_grpo                r - mean                                       Liu et al., 2025
//   rloo                   r - mean of the others                         Ahmadian et al., 2024
//   grpo_loo               (r - mean of the others) / (std of the others + eps)
//   reinforce_pp           r, whitened over all tokens of the batch       Hu, 2025
//   reinforce_pp_baseline  r - mean, whitened over all tokens of the batch
//   gdpo                   each reward part as grpo, weighted sum, normalised over the batch
// A group of one, or one whose rewards are all equal, has advantage exactly 0 (before whitening, where there is any):
// nothing was learned from it. An invalid sample takes no part in any mean or deviation and gets 0, whatever its reward
// holds.
#ifndef LOCKSTEP_ALGOS_ADVANTAGES_H_
#define LOCKSTEP_ALGOS_ADVANTAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lockstep::algos {

enum class AdvantageEstimator : uint8_t { kGrpo, kDrGrpo, kRloo, kGrpoLoo, kReinforcePp, kReinforcePpBaseline, kGdpo };

// Divisor of the variance: n - 1 or n.
enum class Deviation : uint8_t { kSample, kPopulation };

// How the batch is normalised (reinforce_pp*, gdpo).
enum class Whitening : uint8_t {
  kPopulationFloor,    // (x - mean) / sqrt(max(var, 1e-8)), var over tokens, divisor N
  kSampleEpsInside,    // (x - mean) / sqrt(var + 1e-8), var over tokens, divisor N - 1
  kSequenceSampleStd,  // (x - mean) / std over samples, divisor B - 1; no division where std is 0
};

struct AdvantageOptions {
  AdvantageEstimator estimator = AdvantageEstimator::kGrpo;
  Deviation deviation = Deviation::kSample;
  // Added to the deviation, outside the root: bounds the advantage of a group that differs by very little.
  double eps = 1e-6;
  Whitening whitening = Whitening::kPopulationFloor;
  // gdpo only: weight of each reward part.
  std::vector<double> part_weights;
  absl::Status Validate() const;
};

// One entry per sample.
struct RewardBatch {
  std::vector<double> rewards;
  std::vector<std::vector<double>> parts;  // gdpo: [parts][samples]
  std::vector<int32_t> groups;             // samples of one prompt share a number; need not be contiguous
  std::vector<bool> valid;                 // empty: all are
  std::vector<int64_t> token_counts;       // tokens that carry the advantage; whitening only (empty: 1 each)
};

std::vector<double> ComputeAdvantages(const RewardBatch& batch, const AdvantageOptions& options);

// Which samples belong to groups with a signal: a group is kept if and only if its valid rewards are not all equal.
std::vector<bool> GroupFilter(const RewardBatch& batch);

}  // namespace lockstep::algos

#endif  // LOCKSTEP_ALGOS_ADVANTAGES_H_
