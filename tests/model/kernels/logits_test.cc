#include "model/kernels/logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/model/kernels/test_values.h"

namespace lockstep::model {
namespace {

using Kind = KeptIds::Kind;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool Leaves(const LogitFilter& filter, int32_t id) {
  const bool listed = std::binary_search(filter.ids.begin(), filter.ids.end(), id);
  return filter.kind == Kind::kAll || listed == (filter.kind == Kind::kKept);
}

struct Reference {
  std::vector<double> logprob;  // -inf where the filter leaves nothing
  double entropy = 0;
  Reference(const std::vector<float>& logits, double inverse_temperature, const LogitFilter& filter) {
    double max = -kInfinity, sum = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const bool left = Leaves(filter, static_cast<int32_t>(i));
      logprob.push_back(left ? logits[i] * inverse_temperature : -kInfinity);
      max = std::max(max, logprob.back());
    }
    for (double x : logprob) sum += std::exp(x - max);
    for (double& x : logprob) {
      x -= max + std::log(sum);
      if (x > -kInfinity) entropy -= std::exp(x) * x;
    }
  }
};

std::vector<int32_t> EveryNth(int64_t vocab, int64_t step, int64_t first) {
  std::vector<int32_t> ids;
  for (int64_t id = first; id < vocab; id += step) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

struct FilterCase {
  Kind kind;
  std::vector<int32_t> ids;
  LogitFilter filter() const { return {kind, ids}; }
};
std::vector<FilterCase> FilterCases(int64_t vocab) {
  return {{Kind::kAll, {}},
          {Kind::kKept, EveryNth(vocab, 3, 1)},
          {Kind::kKept, {static_cast<int32_t>(vocab / 2)}},
          {Kind::kCut, EveryNth(vocab, 5, 0)},
          {Kind::kCut, {0, static_cast<int32_t>(vocab - 1)}}};
}

TEST(Logits, StatisticsAgreeWithDoubleReference) {
  for (const int64_t vocab : {3, 64, 65, 4096, 5000, 9001, 49152}) {
    const std::vector<float> logits = TestNormal<float>(vocab, vocab, 4);
    for (const FilterCase& c : FilterCases(vocab)) {
      for (const float temperature : {0.5f, 1.0f, 2.0f}) {
        const float inverse = InverseTemperature(temperature);
        const Reference want(logits, inverse, c.filter());
        const RowStatistics got = ComputeStatistics(logits, inverse, c.filter(), true);
        // exp to 2 units of 2^-24, chains of at most 64 + 6 additions of positive terms in a block, then double; x and
        // the differences of LogProb round three times at magnitudes below 64.
        const double tolerance = (2 + 70) * 0x1p-24 + 3 * 64 * 0x1p-24;
        for (int32_t id = 0; id < vocab; id += 1 + static_cast<int32_t>(vocab / 100)) {
          if (!Leaves(c.filter(), id)) continue;
          ASSERT_NEAR(LogProb(got, logits[id], inverse), want.logprob[id], tolerance) << vocab << " " << id;
        }
        // Terms p * (x - max) with |x - max| below 64 in such chains.
        ASSERT_NEAR(got.entropy, want.entropy, 64 * 80 * 0x1p-24) << vocab;
      }
    }
  }
}

TEST(Logits, OneIdLeftHasLogProbZero) {
  const std::vector<float> logits = TestNormal<float>(5000, 1, 4);
  const int32_t ids[] = {4321};
  const RowStatistics s = ComputeStatistics(logits, 0.7f, {Kind::kKept, ids}, true);
  EXPECT_EQ(LogProb(s, logits[4321], 0.7f), 0.0f);
  EXPECT_EQ(s.entropy, 0.0f);
}

TEST(Logits, LargeAndInfiniteLogits) {
  std::vector<float> logits(10000, -kInfinity);
  logits[5] = 1000;
  logits[9000] = 999;
  const RowStatistics s = ComputeStatistics(logits, 1, {}, true);
  const double p = 1 / (1 + std::exp(-1.0));
  EXPECT_NEAR(LogProb(s, 1000, 1), std::log(p), 1e-6);
  EXPECT_NEAR(LogProb(s, 999, 1), std::log(1 - p), 1e-6);
  EXPECT_EQ(LogProb(s, -kInfinity, 1), -kInfinity);
  EXPECT_NEAR(s.entropy, -p * std::log(p) - (1 - p) * std::log(1 - p), 1e-6);
}

TEST(Logits, NanAnywhereGivesNan) {
  for (const int64_t at : {0, 17, 4095, 4096, 9998, 9999}) {
    for (const float others : {0.0f, -kInfinity}) {
      std::vector<float> logits(10000, others);
      logits[500] = 1;
      logits[at] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(ComputeStatistics(logits, 1, {}).log_sum)) << at;
    }
  }
}

TEST(Logits, CuttingIsTheSameAsMinusInfinity) {
  std::vector<float> logits = TestNormal<float>(9001, 3, 3);
  const std::vector<int32_t> cut = EveryNth(9001, 7, 2);
  const RowStatistics by_list = ComputeStatistics(logits, 0.9f, {Kind::kCut, cut}, true);
  for (const int32_t id : cut) logits[id] = -kInfinity;
  const RowStatistics by_value = ComputeStatistics(logits, 0.9f, {}, true);
  EXPECT_EQ(by_list.max, by_value.max);
  EXPECT_EQ(by_list.log_sum, by_value.log_sum);
  EXPECT_EQ(by_list.entropy, by_value.entropy);
}

// The loss that LogitsBackward is the gradient of.
double Loss(const std::vector<double>& logits, absl::Span<const LogitTarget> targets) {
  double loss = 0;
  for (const LogitTarget& t : targets) {
    double max = -kInfinity, sum = 0, entropy = 0;
    const int64_t vocab = static_cast<int64_t>(logits.size());
    for (int32_t i = 0; i < vocab; ++i) {
      if (Leaves(t.filter, i)) max = std::max(max, logits[i] * t.inverse_temperature);
    }
    for (int32_t i = 0; i < vocab; ++i) {
      if (Leaves(t.filter, i)) sum += std::exp(logits[i] * t.inverse_temperature - max);
    }
    for (int32_t i = 0; i < vocab; ++i) {
      const double logprob = logits[i] * t.inverse_temperature - max - std::log(sum);
      if (Leaves(t.filter, i)) entropy -= std::exp(logprob) * logprob;
    }
    loss += t.d_logprob * (logits[t.id] * t.inverse_temperature - max - std::log(sum)) + t.d_entropy * entropy;
  }
  return loss;
}

TEST(Logits, BackwardAgreesWithFiniteDifferences) {
  const int64_t vocab = 4200;
  const std::vector<float> logits = TestNormal<float>(vocab, 11, 2);
  const std::vector<int32_t> kept = EveryNth(vocab, 90, 7), cut = EveryNth(vocab, 4, 1);
  std::vector<LogitTarget> targets(3);
  targets[0] = {
      .id = 4150, .inverse_temperature = 1, .filter = {}, .statistics = {}, .d_logprob = 0.8f, .d_entropy = 0.3f};
  targets[1] = {.id = 97,
                .inverse_temperature = 2,
                .filter = {Kind::kKept, kept},
                .statistics = {},
                .d_logprob = -1.5f,
                .d_entropy = 0.1f};
  targets[2] = {.id = 4,
                .inverse_temperature = 0.5f,
                .filter = {Kind::kCut, cut},
                .statistics = {},
                .d_logprob = 0.25f,
                .d_entropy = 0};
  for (LogitTarget& t : targets) t.statistics = ComputeStatistics(logits, t.inverse_temperature, t.filter, true);
  std::vector<float> gradient(vocab);
  LogitsBackward<float>(logits, targets, gradient.data());
  std::vector<Bf16> narrow(vocab);
  LogitsBackward<Bf16>(logits, targets, narrow.data());
  std::vector<float> in_place = logits;
  LogitsBackward<float>(in_place, targets, in_place.data());
  EXPECT_EQ(in_place, gradient);

  std::vector<double> x(logits.begin(), logits.end());
  std::vector<int64_t> ids = {4150, 97, 4};
  for (int64_t id = 0; id < vocab; id += 97) ids.push_back(id);
  for (const int64_t id : ids) {
    const double h = 1e-4;
    x[id] += h;
    const double above = Loss(x, targets);
    x[id] -= 2 * h;
    const double below = Loss(x, targets);
    x[id] += h;
    // Central differences err by h^2 and by the roundings of the loss over h.
    ASSERT_NEAR(gradient[id], (above - below) / (2 * h), 1e-6) << id;
  }
  for (int64_t id = 0; id < vocab; ++id) ASSERT_EQ(narrow[id].bits, ToBf16(gradient[id]).bits);
}

TEST(Logits, NothingFlowsToWhatWasCut) {
  std::vector<float> logits = TestNormal<float>(300, 12, 2);
  logits[8] = -kInfinity;
  const std::vector<int32_t> kept = {3, 8, 200};
  LogitTarget target{.id = 3,
                     .inverse_temperature = 1,
                     .filter = {Kind::kKept, kept},
                     .statistics = {},
                     .d_logprob = 1,
                     .d_entropy = 1};
  target.statistics = ComputeStatistics(logits, 1, target.filter, true);
  std::vector<float> gradient(300);
  LogitsBackward<float>(logits, absl::MakeConstSpan(&target, 1), gradient.data());
  for (int32_t id = 0; id < 300; ++id) {
    if (id == 3 || id == 200) {
      EXPECT_NE(gradient[id], 0.0f);
    } else {
      ASSERT_EQ(gradient[id], 0.0f) << id;
    }
  }
}

}  // namespace
}  // namespace lockstep::model
