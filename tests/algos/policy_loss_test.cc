#include "algos/policy_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "algos/advantages.h"
#include "tests/testing/status_matchers.h"

namespace lockstep::algos {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::HasSubstr;

constexpr Aggregation kAggregations[] = {Aggregation::kTokenMean, Aggregation::kSeqMeanTokenMean,
                                         Aggregation::kSeqMeanTokenMeanAllRows, Aggregation::kSeqMeanTokenSum,
                                         Aggregation::kSeqMeanTokenSumNorm};

// Rows of 3, 0, 5 and 1 tokens; one advantage a row.
TokenArrays RandomArrays(uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  TokenArrays arrays;
  arrays.row_begin = {0};
  for (int64_t tokens : {3, 0, 5, 1}) {
    const double advantage = 2 * uniform(random);
    for (int64_t t = 0; t < tokens; ++t) {
      arrays.policy.push_back(-1.5 + uniform(random));
      arrays.old.push_back(arrays.policy.back() + 0.5 * uniform(random));
      arrays.ref.push_back(arrays.policy.back() + uniform(random));
      arrays.advantages.push_back(advantage);
    }
    arrays.row_begin.push_back(arrays.row_begin.back() + tokens);
  }
  return arrays;
}

constexpr LossNormalizer kNormalizer{.num_tokens = 9, .num_rows_with_tokens = 3, .num_rows = 4};

double LossAt(const TokenArrays& arrays, const PolicyLossOptions& options) {
  std::vector<double> gradient(arrays.policy.size());
  return ComputePolicyLoss(arrays, options, kNormalizer, absl::MakeSpan(gradient), {}).loss;
}

// Central differences of the loss. Objectives that stop a gradient (cispo, and gspo_token token by token) are left to
// the golden cases.
TEST(PolicyLoss, GradientsAreThoseOfTheLoss) {
  constexpr double kStep = 1e-5;
  for (Objective objective : {Objective::kReinforce, Objective::kPpoClip, Objective::kGspoDirect}) {
    for (Aggregation aggregation : kAggregations) {
      for (KlEstimator estimator : {KlEstimator::kK1, KlEstimator::kK2, KlEstimator::kK3}) {
        const PolicyLossOptions options{.objective = objective,
                                        .clip_high = 0.28,
                                        .dual_clip = 1.3,
                                        .aggregation = aggregation,
                                        .norm_length = 7,
                                        .kl_coef = 0.3,
                                        .kl_estimator = estimator};
        for (uint32_t seed = 0; seed < 20; ++seed) {
          TokenArrays arrays = RandomArrays(seed);
          std::vector<double> gradient(arrays.policy.size());
          ComputePolicyLoss(arrays, options, kNormalizer, absl::MakeSpan(gradient), {});
          for (size_t t = 0; t < gradient.size(); ++t) {
            const double at = arrays.policy[t];
            arrays.policy[t] = at + kStep;
            const double above = LossAt(arrays, options);
            arrays.policy[t] = at - kStep;
            const double below = LossAt(arrays, options);
            arrays.policy[t] = at;
            // Second-order error: step^2 times third derivatives of a few units.
            EXPECT_NEAR(gradient[t], (above - below) / (2 * kStep), 1e-8)
                << static_cast<int>(objective) << static_cast<int>(aggregation) << " seed " << seed << " token " << t;
          }
        }
      }
    }
  }
}

TEST(PolicyLoss, TheFloatEntryRoundsTheGradientOnce) {
  const TokenArrays arrays = RandomArrays(3);
  const auto floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> policy = floats(arrays.policy), old = floats(arrays.old), ref = floats(arrays.ref),
                           advantages = floats(arrays.advantages);
  TokenArrays rounded = arrays;
  rounded.policy.assign(policy.begin(), policy.end());
  rounded.old.assign(old.begin(), old.end());
  rounded.ref.assign(ref.begin(), ref.end());
  rounded.advantages.assign(advantages.begin(), advantages.end());
  const PolicyLossOptions options{.kl_coef = 0.1};
  std::vector<float> got(policy.size());
  std::vector<double> want(policy.size());
  const PolicyLossResult result =
      ComputePolicyLoss({arrays.row_begin, policy, old, ref, advantages}, options, kNormalizer, absl::MakeSpan(got));
  const PolicyLossResult wanted = ComputePolicyLoss(rounded, options, kNormalizer, absl::MakeSpan(want), {});
  EXPECT_EQ(result.loss, wanted.loss);
  for (size_t t = 0; t < got.size(); ++t) EXPECT_EQ(got[t], static_cast<float>(want[t]));
}

TEST(PolicyLoss, MetricsCountWhatHappened) {
  TokenArrays arrays;
  arrays.row_begin = {0, 3};
  arrays.old = {-1, -1, -1};
  arrays.policy = {-1, -1 + std::log(1.5), -1 + std::log(0.5)};
  arrays.ref = arrays.old;
  arrays.advantages = {1, 1, 1};
  std::vector<double> gradient(3);
  const PolicyLossOptions options{.kl_coef = 0.5, .kl_estimator = KlEstimator::kK2};
  const PolicyLossResult result = ComputePolicyLoss(
      arrays, options, {.num_tokens = 3, .num_rows_with_tokens = 1, .num_rows = 1}, absl::MakeSpan(gradient), {});
  EXPECT_EQ(result.num_tokens, 3);
  EXPECT_EQ(result.clipped_tokens, 1);  // 1.5 is above the range; 0.5 is below it, but lowering it more costs
  EXPECT_NEAR(result.ratio_sum, 3.0, 1e-12);
  const double up = std::log(1.5), down = std::log(0.5);
  EXPECT_NEAR(result.approx_kl_sum, (1 / 1.5 - 1 + up) + (2 - 1 + down), 1e-12);
  EXPECT_NEAR(result.kl_ref_sum, (up * up + down * down) / 2, 1e-12);
}

TEST(PolicyLoss, NothingToTrainIsNoLoss) {
  TokenArrays arrays;
  arrays.row_begin = {0, 0, 0};
  for (Aggregation aggregation : kAggregations) {
    const PolicyLossResult result = ComputePolicyLoss(arrays, {.aggregation = aggregation}, {0, 0, 2}, {}, {});
    EXPECT_EQ(result.loss, 0);
    EXPECT_EQ(result.num_tokens, 0);
  }
}

TEST(PolicyLossOptions, ValidateNamesTheField) {
  EXPECT_OK(PolicyLossOptions{}.Validate());
  const auto expect_bad = [](const PolicyLossOptions& options, const std::string& field) {
    EXPECT_THAT(options.Validate(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)));
  };
  expect_bad({.clip_low = 1.5}, "clip_low");
  expect_bad({.clip_high = -0.1}, "clip_high");
  expect_bad({.clip_high = std::nan("")}, "clip_high");
  expect_bad({.dual_clip = 1}, "dual_clip");
  expect_bad({.norm_length = 0}, "norm_length");
  expect_bad({.kl_coef = -1}, "kl_coef");
  expect_bad({.objective = Objective::kCispoAbsoluteUpper}, "cispo_cap");
}

TEST(AdvantageOptions, ValidateNamesTheField) {
  EXPECT_OK(AdvantageOptions{}.Validate());
  for (double eps : {-1.0, std::nan("")}) {
    AdvantageOptions options;
    options.eps = eps;
    EXPECT_THAT(options.Validate(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("eps")));
  }
}

}  // namespace
}  // namespace lockstep::algos
