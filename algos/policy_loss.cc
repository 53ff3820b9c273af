#include "algos/policy_loss.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace lockstep::algos {
namespace {

// A token's loss and its derivative by the token's own log-prob; `clipped` if a clamp decided.
struct TokenLoss {
  double value = 0;
  double slope = 0;
  bool clipped = false;
};

// The clipped surrogate of a ratio whose derivative by the log-prob is the ratio itself.
TokenLoss ClippedSurrogate(double ratio, double advantage, const PolicyLossOptions& options) {
  const double free = -advantage * ratio;
  const double clamped = -advantage * std::clamp(ratio, 1 - options.clip_low, 1 + options.clip_high);
  TokenLoss loss = free >= clamped ? TokenLoss{free, free, false} : TokenLoss{clamped, 0, true};
  if (options.dual_clip > 0 && advantage < 0 && loss.value > -advantage * options.dual_clip) {
    loss = {-advantage * options.dual_clip, 0, true};
  }
  return loss;
}

TokenLoss Reinforce(double logprob, double advantage) { return {-advantage * logprob, -advantage, false}; }

TokenLoss Cispo(double logprob, double ratio, double advantage, const PolicyLossOptions& options) {
  const double weight = options.objective == Objective::kCispo
                            ? std::clamp(ratio, 1 - options.clip_low, 1 + options.clip_high)
                            : std::min(ratio, options.cispo_cap);
  return {-weight * advantage * logprob, -weight * advantage, weight != ratio};
}

struct KlTerm {
  double value = 0;
  double slope = 0;  // by the policy's log-prob
};

KlTerm Kl(double ref, double policy, const PolicyLossOptions& options) {
  double d = ref - policy;
  bool live = true;
  if (options.kl_input_clamp > 0 && std::abs(d) > options.kl_input_clamp) {
    d = std::clamp(d, -options.kl_input_clamp, options.kl_input_clamp);
    live = false;
  }
  KlTerm term;
  switch (options.kl_estimator) {
    case KlEstimator::kK1:
      term = {-d, 1};
      break;
    case KlEstimator::kK2:
      term = {d * d / 2, -d};
      break;
    case KlEstimator::kK3:
      term = {std::expm1(d) - d, -std::expm1(d)};
      break;
  }
  if (options.kl_gradient == KlGradient::kStraightThroughK2) term.slope = -d;
  if (!live) term.slope = 0;
  if (options.kl_output_clamp > 0 && std::abs(term.value) > options.kl_output_clamp) {
    term = {std::clamp(term.value, -options.kl_output_clamp, options.kl_output_clamp), 0};
  }
  if (options.kl_gradient == KlGradient::kScore) term.slope += term.value;
  return term;
}

// Factor on the token losses of a row with `tokens` tokens.
double Weight(const PolicyLossOptions& options, const LossNormalizer& normalizer, int64_t tokens) {
  const auto inverse = [](int64_t count) { return count > 0 ? 1.0 / static_cast<double>(count) : 0.0; };
  switch (options.aggregation) {
    case Aggregation::kTokenMean:
      return inverse(normalizer.num_tokens);
    case Aggregation::kSeqMeanTokenMean:
      return inverse(normalizer.num_rows_with_tokens) * inverse(tokens);
    case Aggregation::kSeqMeanTokenMeanAllRows:
      return inverse(normalizer.num_rows) * inverse(tokens);
    case Aggregation::kSeqMeanTokenSum:
      return inverse(normalizer.num_rows_with_tokens);
    case Aggregation::kSeqMeanTokenSumNorm:
      return inverse(normalizer.num_rows_with_tokens) / options.norm_length;
  }
  return 0;
}

bool IsSequenceLevel(Objective objective) {
  return objective == Objective::kGspoDirect || objective == Objective::kGspoToken;
}

}  // namespace

absl::Status PolicyLossOptions::Validate() const {
  const auto bad = [](const char* field, double value, const char* valid) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ": it must be ", valid));
  };
  if (!(clip_low >= 0 && clip_low <= 1)) return bad("clip_low", clip_low, "from 0 to 1");
  if (!(clip_high >= 0)) return bad("clip_high", clip_high, "0 or positive");
  if (!(dual_clip == 0 || dual_clip > 1)) return bad("dual_clip", dual_clip, "0 (off) or above 1");
  if (!(norm_length > 0)) return bad("norm_length", norm_length, "positive");
  if (!(kl_coef >= 0)) return bad("kl_coef", kl_coef, "0 or positive");
  if (objective == Objective::kCispoAbsoluteUpper && !(cispo_cap > 0)) return bad("cispo_cap", cispo_cap, "positive");
  return absl::OkStatus();
}

void PolicyLossResult::Add(const PolicyLossResult& other) {
  loss += other.loss;
  clipped_tokens += other.clipped_tokens;
  ratio_sum += other.ratio_sum;
  approx_kl_sum += other.approx_kl_sum;
  kl_ref_sum += other.kl_ref_sum;
  num_tokens += other.num_tokens;
}

PolicyLossResult ComputePolicyLoss(const TokenArrays& arrays, const PolicyLossOptions& options,
                                   const LossNormalizer& normalizer, absl::Span<double> d_logprobs,
                                   absl::Span<double> token_loss) {
  PolicyLossResult result;
  for (size_t row = 0; row + 1 < arrays.row_begin.size(); ++row) {
    const int64_t begin = arrays.row_begin[row], end = arrays.row_begin[row + 1];
    const double weight = Weight(options, normalizer, end - begin);
    double sequence_ratio = 1, row_slope = 0;
    if (IsSequenceLevel(options.objective) && end > begin) {
      double sum = 0;
      for (int64_t t = begin; t < end; ++t) sum += arrays.policy[t] - arrays.old[t];
      sequence_ratio = std::exp(sum / static_cast<double>(end - begin));
    }
    for (int64_t t = begin; t < end; ++t) {
      const double logprob = arrays.policy[t], advantage = arrays.advantages[t];
      const double log_ratio = arrays.old.empty() ? 0.0 : logprob - arrays.old[t];
      const double ratio = IsSequenceLevel(options.objective) ? sequence_ratio : std::exp(log_ratio);
      TokenLoss loss;
      switch (options.objective) {
        case Objective::kReinforce:
          loss = Reinforce(logprob, advantage);
          break;
        case Objective::kPpoClip:
        case Objective::kGspoDirect:
        case Objective::kGspoToken:
          loss = ClippedSurrogate(ratio, advantage, options);
          break;
        case Objective::kCispo:
        case Objective::kCispoAbsoluteUpper:
          loss = Cispo(logprob, ratio, advantage, options);
          break;
      }
      double value = loss.value, slope = loss.slope;
      if (options.objective == Objective::kGspoDirect) {
        row_slope += slope;  // shared by the row's tokens, below
        slope = 0;
      }
      if (options.kl_coef > 0) {
        const KlTerm kl = Kl(arrays.ref[t], logprob, options);
        value += options.kl_coef * kl.value;
        slope += options.kl_coef * kl.slope;
        result.kl_ref_sum += kl.value;
      }
      d_logprobs[t] = weight * slope;
      if (!token_loss.empty()) token_loss[t] = value;
      result.loss += weight * value;
      result.clipped_tokens += loss.clipped ? 1 : 0;
      result.ratio_sum += ratio;
      result.approx_kl_sum += std::expm1(-log_ratio) + log_ratio;
    }
    if (options.objective == Objective::kGspoDirect) {
      for (int64_t t = begin; t < end; ++t) d_logprobs[t] += weight * row_slope / static_cast<double>(end - begin);
    }
    result.num_tokens += end - begin;
  }
  return result;
}

PolicyLossResult ComputePolicyLoss(const PolicyBatch& batch, const PolicyLossOptions& options,
                                   const LossNormalizer& normalizer, absl::Span<float> d_logprobs,
                                   absl::Span<double> token_loss) {
  TokenArrays arrays;
  arrays.row_begin.assign(batch.row_begin.begin(), batch.row_begin.end());
  arrays.policy.assign(batch.policy_logprobs.begin(), batch.policy_logprobs.end());
  arrays.old.assign(batch.old_logprobs.begin(), batch.old_logprobs.end());
  arrays.ref.assign(batch.ref_logprobs.begin(), batch.ref_logprobs.end());
  arrays.advantages.assign(batch.advantages.begin(), batch.advantages.end());
  CHECK(arrays.old.size() == arrays.policy.size() ||
        (arrays.old.empty() && options.objective == Objective::kReinforce));
  CHECK(options.kl_coef == 0 || arrays.ref.size() == arrays.policy.size());
  std::vector<double> gradient(arrays.policy.size(), 0.0);
  const PolicyLossResult result = ComputePolicyLoss(arrays, options, normalizer, absl::MakeSpan(gradient), token_loss);
  for (size_t t = 0; t < gradient.size(); ++t) d_logprobs[t] = static_cast<float>(gradient[t]);
  return result;
}

}  // namespace lockstep::algos
