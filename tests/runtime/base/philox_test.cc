#include "runtime/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace lockstep {
namespace {

using Block = std::array<uint32_t, 4>;

constexpr uint32_t kOnes = 0xffffffff;

// The known answers that the authors of the paper publish with their library Random123 (kat_vectors, "philox4x32 10").
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Digits of pi.
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Which counter belongs to which draw is part of every run's bits: this layout must never change.
TEST(RandomBits, CounterLayoutIsFixed) {
  const RandomKey key{0x1122334455667788, RandomPurpose::kShuffle};
  const DrawId id{.ordinal = 0xabcd12345678, .sample = 0x9abcde, .turn = 0xf012, .draw = 0xfedcba98};
  EXPECT_EQ(RandomBits(key, id),
            Philox4x32({0x12345678, 0xf012abcd, 0x029abcde, 0xfedcba98}, {0x55667788, 0x11223344}));
  EXPECT_EQ(RandomBits({0, RandomPurpose::kSampling}, {}), Philox4x32({0, 0, 1u << 24, 0}, {0, 0}));
}

TEST(RandomBits, EveryFieldMatters) {
  const RandomKey key{7, RandomPurpose::kSampling};
  const std::set<Block> blocks = {
      RandomBits(key, {}),
      RandomBits({8, RandomPurpose::kSampling}, {}),
      RandomBits({7 + (uint64_t{1} << 32), RandomPurpose::kSampling}, {}),
      RandomBits({7, RandomPurpose::kEval}, {}),
      RandomBits(key, {.ordinal = 1}),
      RandomBits(key, {.ordinal = int64_t{1} << 32}),
      RandomBits(key, {.sample = 1}),
      RandomBits(key, {.turn = 1}),
      RandomBits(key, {.draw = 1}),
  };
  EXPECT_EQ(blocks.size(), 9u);
}

TEST(RandomBits, LargestIdsAreAccepted) {
  const DrawId largest{.ordinal = (int64_t{1} << 48) - 1, .sample = (1 << 24) - 1, .turn = 0xffff, .draw = kOnes};
  EXPECT_EQ(RandomBits({0, RandomPurpose::kTest}, largest), Philox4x32({kOnes, kOnes, 0x06ffffff, kOnes}, {0, 0}));
}

TEST(RandomBitsDeathTest, IdsOutOfRangeAreFaults) {
  const RandomKey key;
  EXPECT_DEATH(RandomBits(key, {.ordinal = int64_t{1} << 48}), "ordinal");
  EXPECT_DEATH(RandomBits(key, {.ordinal = -1}), "ordinal");
  EXPECT_DEATH(RandomBits(key, {.sample = 1 << 24}), "sample");
  EXPECT_DEATH(RandomBits(key, {.turn = 1 << 16}), "turn");
  EXPECT_DEATH(RandomBits(key, {.draw = int64_t{1} << 32}), "draw");
}

TEST(UniformDouble, TakesTheTop53Bits) {
  const RandomKey key{3, RandomPurpose::kTest};
  for (int64_t draw = 0; draw < 100; ++draw) {
    const Block bits = RandomBits(key, {.draw = draw});
    const double expected = std::floor((bits[0] * 0x1p32 + bits[1]) * 0x1p-11) * 0x1p-53;
    // The sum above is rounded to 53 bits, which may carry into the last one.
    EXPECT_NEAR(UniformDouble(key, {.draw = draw}), expected, 0x1p-52);
  }
}

// Mean 1/2 and variance 1/12 within five standard errors, and the largest gap from the uniform distribution function
// below the Kolmogorov-Smirnov bound at one in a million, sqrt(ln(2 / 1e-6) / 2 / n). The numbers are fixed by the
// seed.
TEST(UniformDouble, LooksUniform) {
  constexpr int kDraws = 100000;
  const RandomKey key{11, RandomPurpose::kTest};
  std::multiset<double> values;
  double sum = 0, sum_squares = 0;
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    const double u = UniformDouble(key, {.ordinal = draw % 10, .draw = draw / 10});
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    values.insert(u);
    sum += u;
    sum_squares += u * u;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(sum_squares / kDraws - mean * mean, 1.0 / 12, 5 * std::sqrt(1.0 / 180 / kDraws));
  double gap = 0;
  int below = 0;
  for (const double u : values) gap = std::max(gap, std::abs(++below / double{kDraws} - u));
  EXPECT_LT(gap, std::sqrt(std::log(2 / 1e-6) / 2 / kDraws));
}

// Chi-square of 10 bins: mean 9, standard deviation sqrt(18).
TEST(UniformBelow, CoversTheRangeEvenly) {
  constexpr int kBound = 10, kDraws = 20000;
  const RandomKey key{5, RandomPurpose::kTest};
  std::vector<int> counts(kBound, 0);
  for (int64_t draw = 0; draw < kDraws; ++draw) ++counts.at(UniformBelow(key, {.draw = draw}, kBound));
  double chi_square = 0;
  for (const int count : counts) chi_square += std::pow(count - kDraws / kBound, 2) / (kDraws / kBound);
  EXPECT_LT(chi_square, 9 + 5 * std::sqrt(18.0));
}

TEST(UniformBelow, SmallestAndLargestBound) {
  const RandomKey key{5, RandomPurpose::kTest};
  for (int64_t draw = 0; draw < 100; ++draw) {
    EXPECT_EQ(UniformBelow(key, {.draw = draw}, 1), 0u);
    EXPECT_EQ(UniformBelow(key, {.draw = draw}, uint64_t{1} << 32), RandomBits(key, {.draw = draw})[0]);
  }
}

TEST(UniformBelowDeathTest, BoundOutOfRangeIsAFault) {
  EXPECT_DEATH(UniformBelow({}, {}, 0), "bound");
  EXPECT_DEATH(UniformBelow({}, {}, (uint64_t{1} << 32) + 1), "bound");
}

}  // namespace
}  // namespace lockstep
