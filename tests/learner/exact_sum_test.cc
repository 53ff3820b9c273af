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

// Every size of value, ties between quanta and lengths around the inner blocks, against long double arithmetic.
TEST(ExactSum, EveryMagnitudeRoundsAsTheReferenceDoes) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 600; ++round) {
    const int quantum = round % 3 == 0 ? kFirstQuantumLog2 + kQuantumStepLog2 : kFirstQuantumLog2;
    const int64_t count = 1 + static_cast<int64_t>(random() % 1300);
    std::vector<float> values(count);
    std::vector<int64_t> got(count), want(count);
    float max_abs = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto mantissa = static_cast<float>(static_cast<int64_t>(random() % 0x2000001) - 0x1000000);
      // In even rounds every value is within 2^50 quanta; in odd ones up to 2^61 of them.
      const int exponent = static_cast<int>(random() % (round % 2 == 0 ? 86 : 97)) - 60;
      values[i] = random() % 4 == 0 ? std::ldexp(static_cast<float>(static_cast<int>(random() % 65) - 32), quantum - 1)
                                    : std::ldexp(mantissa, exponent + quantum);
      got[i] = want[i] = static_cast<int64_t>(random() >> 3);
      const long double scaled = std::ldexp(static_cast<long double>(values[i]), -quantum);
      ASSERT_LT(std::abs(scaled), 0x1p62L);
      want[i] += std::llrint(scaled);
      max_abs = std::max(max_abs, std::abs(values[i]));
    }
    const RangeCheck check = AddExact(values.data(), count, quantum, got.data());
    ASSERT_EQ(got, want) << "round " << round;
    EXPECT_EQ(check.max_abs, max_abs);
    EXPECT_TRUE(check.finite);
  }
}

TEST(ExactSum, OneBadValueAmongManyIsFlaggedAndTheLargestIsThatOfTheRest) {
  for (int64_t at : {0, 511, 512, 999}) {
    std::vector<float> values(1000, 0.25f);
    std::vector<int64_t> sums(1000);
    values[(at + 1) % 1000] = -3;
    values[at] = std::numeric_limits<float>::quiet_NaN();
    const RangeCheck check = AddExact(values.data(), 1000, kFirstQuantumLog2, sums.data());
    EXPECT_FALSE(check.finite) << at;
    EXPECT_EQ(check.max_abs, 3) << at;
  }
}

TEST(BlockSumOfSquares, IsOneChainInDouble) {
  std::vector<float> values(kNormBlock);
  double want = 0;
  for (int64_t i = 0; i < kNormBlock; ++i) {
    values[i] = 1e-3f * static_cast<float>(i % 97) - 0.02f;
    want += static_cast<double>(values[i]) * values[i];
  }
  EXPECT_EQ(BlockSumOfSquares(values.data(), kNormBlock), want);
}

}  // namespace
}  // namespace lockstep::learner
