// Policy-gradient losses with their gradients by the log-probs, a KL term, and aggregation. Pure arithmetic in double.
//
// Arrays hold unmasked tokens only, rows (samples) one after the other: a masked token never enters the arithmetic,
// whatever it holds. Losses are minimised. r = exp(policy - old), A = advantage:
//   reinforce    -A policy                                                               Williams, 1992
//   ppo_clip     max(-A r, -A clamp(r, 1 - low, 1 + high)); with dual_clip c and A < 0: min(that, -A c)
//                Schulman et al., 2017; high > low: Yu et al., 2025 (DAPO); dual clip: Ye et al., 2020
//   gspo_direct  s = exp(mean over the row of (policy - old)), clipped as above; the gradient goes through s to every
//                token of the row                                                        Zheng et al., 2025
//   gspo_token   the same value; token t's loss sends its gradient to token t alone
//   cispo        -stop(w) A policy, w = clamp(r, 1 - low, 1 + high), or min(r, cap)       MiniMax, 2025
// KL term, added as coef * k with d = ref - policy: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d (Schulman, 2020).
#ifndef LOCKSTEP_ALGOS_POLICY_LOSS_H_
#define LOCKSTEP_ALGOS_POLICY_LOSS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lockstep::algos {

enum class Objective : uint8_t { kReinforce, kPpoClip, kGspoDirect, kGspoToken, kCispo, kCispoAbsoluteUpper };

enum class Aggregation : uint8_t {
  kTokenMean,                // sum of token losses / tokens
  kSeqMeanTokenMean,         // mean over rows that have a token of (mean over its tokens)
  kSeqMeanTokenMeanAllRows,  // the same, divided by all rows
  kSeqMeanTokenSum,          // sum of token losses / rows that have a token
  kSeqMeanTokenSumNorm,      // the same / norm_length (Dr.GRPO: Liu et al., 2025)
};

enum class KlEstimator : uint8_t { kK1, kK2, kK3 };
enum class KlGradient : uint8_t {
  kPathwise,           // derivative of the estimator
  kScore,              // adds the estimator itself: the missing term of the expectation's gradient
  kStraightThroughK2,  // value of the estimator, gradient of k2
};

struct PolicyLossOptions {
  Objective objective = Objective::kPpoClip;
  double clip_low = 0.2;
  double clip_high = 0.2;
  double dual_clip = 0;  // 0: off; else above 1
  double cispo_cap = 0;  // kCispoAbsoluteUpper
  Aggregation aggregation = Aggregation::kTokenMean;
  double norm_length = 1;  // kSeqMeanTokenSumNorm
  double kl_coef = 0;      // 0: no reference is looked at
  KlEstimator kl_estimator = KlEstimator::kK3;
  KlGradient kl_gradient = KlGradient::kPathwise;
  double kl_input_clamp = 0;   // |d| at most; 0: off
  double kl_output_clamp = 0;  // |estimator| at most; 0: off
  absl::Status Validate() const;
};

// Denominators of an optimizer step, counted over all micro-batches and ranks before the first one.
struct LossNormalizer {
  int64_t num_tokens = 0;
  int64_t num_rows_with_tokens = 0;
  int64_t num_rows = 0;
};

struct PolicyBatch {
  absl::Span<const int64_t> row_begin;      // [rows + 1]: row i is tokens [row_begin[i], row_begin[i + 1])
  absl::Span<const float> policy_logprobs;  // [tokens]
  absl::Span<const float> old_logprobs;     // [tokens]; may be empty for reinforce
  absl::Span<const float> ref_logprobs;     // [tokens], or empty where kl_coef is 0
  absl::Span<const float> advantages;       // [tokens]
};

// Partial sums: losses of micro-batches add up to the loss of the step, metrics likewise (divide by the step's token
// count).
struct PolicyLossResult {
  double loss = 0;
  double clipped_tokens = 0;  // tokens whose gradient a clamp cut off
  double ratio_sum = 0;
  double approx_kl_sum = 0;  // k3 of policy against old
  double kl_ref_sum = 0;     // the estimator against the reference
  int64_t num_tokens = 0;
  void Add(const PolicyLossResult& other);
};

// d_logprobs // [tokens], overwritten: d loss / d policy_logprobs.     token_loss // [tokens], or empty
PolicyLossResult ComputePolicyLoss(const PolicyBatch& batch, const PolicyLossOptions& options,
                                   const LossNormalizer& normalizer, absl::Span<float> d_logprobs,
                                   absl::Span<double> token_loss = {});

// The same in double throughout: what the float entry point calls.
struct TokenArrays {
  std::vector<int64_t> row_begin;
  std::vector<double> policy, old, ref, advantages;
};
PolicyLossResult ComputePolicyLoss(const TokenArrays& arrays, const PolicyLossOptions& options,
                                   const LossNormalizer& normalizer, absl::Span<double> d_logprobs,
                                   absl::Span<double> token_loss);

}  // namespace lockstep::algos

#endif  // LOCKSTEP_ALGOS_POLICY_LOSS_H_
