#include "learner/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace lockstep::learner {
namespace {

TEST(ExactSum, OrderDoesNotMatter) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 1e-3f);
  std::vector<float> contributions(1000);
  for (float& value : contributions) value = normal(random);
  int64_t forward = 0, shuffled = 0;
  for (float value : contributions) AddExact(&value, 1, kFirstQuantumLog2, &forward);
  std::shuffle(contributions.begin(), contributions.end(), random);
  for (float value : contributions) AddExact(&value, 1, kFirstQuantumLog2, &shuffled);
  EXPECT_EQ(forward, shuffled);
}

TEST(ExactSum, TheErrorIsAtMostHalfAQuantumAContribution) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1e-12f, 1e-12f);
  double want = 0;
  int64_t sum = 0;
  const int n = 10000;
  for (int i = 0; i < n; ++i) {
    const float value = uniform(random);
    want += value;
    AddExact(&value, 1, kFirstQuantumLog2, &sum);
  }
  EXPECT_LE(std::abs(std::ldexp(static_cast<double>(sum), kFirstQuantumLog2) - want),
            n * std::ldexp(0.5, kFirstQuantumLog2));
}

TEST(ExactSum, RoundsToNearestEven) {
  const float halves[] = {std::ldexp(0.5f, -50), std::ldexp(1.5f, -50), std::ldexp(2.5f, -50), std::ldexp(-0.5f, -50)};
  int64_t sums[4] = {};
  AddExact(halves, 4, -50, sums);
  EXPECT_EQ(sums[0], 0);
  EXPECT_EQ(sums[1], 2);
  EXPECT_EQ(sums[2], 2);
  EXPECT_EQ(sums[3], 0);
}

TEST(ExactSum, FlagsWhatCannotBeAdded) {
  int64_t sum = 0;
  const float large = 5000.0f;
  RangeCheck check = AddExact(&large, 1, kFirstQuantumLog2, &sum);
  EXPECT_TRUE(check.finite);
  EXPECT_GT(check.max_abs, LargestContribution(kFirstQuantumLog2, 1));
  EXPECT_LT(check.max_abs, LargestContribution(kFirstQuantumLog2 + kQuantumStepLog2, 1));
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_FALSE(AddExact(&bad, 1, kFirstQuantumLog2, &sum).finite);
  }
}

TEST(ExactSum, WithinTheBoundNoOrderOverflows) {
  // As many contributions as were promised, each as large as allowed.
  const int64_t n = 64;
  const auto value = static_cast<float>(LargestContribution(kFirstQuantumLog2, n));
  int64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) EXPECT_TRUE(AddExact(&value, 1, kFirstQuantumLog2, &sum).finite);
  EXPECT_GT(sum, 0);
  float back = 0;
  ExactToFloat(&sum, 1, kFirstQuantumLog2, &back);
  EXPECT_EQ(back, value * n);
}

}  // namespace
}  // namespace lockstep::learner
