// The sampler beside a slow one in double that sorts the whole vocabulary.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "model/kernels/logits.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "tests/model/kernels/test_values.h"
#include "tests/testing/shared_files.h"

namespace lockstep::model {
namespace {

using Kind = KeptIds::Kind;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Kept ids, ascending, by the definition. `margin` gets the smallest distance, as a share of the mass, by which an id
// was kept or cut by top-p.
std::vector<int32_t> KeptByDefinition(const std::vector<float>& logits, const SamplingFilter& filter, double* margin) {
  const float inverse = InverseTemperature(filter.temperature);
  std::vector<int32_t> order;
  for (int32_t id = 0; id < static_cast<int32_t>(logits.size()); ++id) {
    const bool banned = std::binary_search(filter.banned_ids.begin(), filter.banned_ids.end(), id);
    if (!banned && logits[id] != -kInfinity) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] * inverse > logits[b] * inverse; });
  if (filter.top_k > 0 && filter.top_k < static_cast<int32_t>(order.size())) order.resize(filter.top_k);
  *margin = 1;
  if (filter.top_p < 1) {
    std::vector<double> weights;
    for (int32_t id : order)
      weights.push_back(std::exp((static_cast<double>(logits[id]) - logits[order[0]]) * inverse));
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    double before = 0;
    size_t kept = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      *margin = std::min(*margin, std::abs(before / total - filter.top_p));
      if (i == 0 || before < filter.top_p * total) kept = i + 1;
      before += weights[i];
    }
    order.resize(kept);
  }
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<int32_t> IdsOf(const LogitFilter& filter, const std::vector<float>& logits) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < static_cast<int32_t>(logits.size()); ++id) {
    const bool listed = std::binary_search(filter.ids.begin(), filter.ids.end(), id);
    const bool left = filter.kind == Kind::kAll || listed == (filter.kind == Kind::kKept);
    if (left && logits[id] != -kInfinity) ids.push_back(id);
  }
  return ids;
}

TEST(Sampling, KeepsWhatTheDefinitionKeeps) {
  int compared = 0;
  for (const int64_t vocab : {2, 7, 100, 4097, 20000}) {
    for (const double spread : {0.01, 1.0, 5.0}) {
      std::vector<float> logits = TestNormal<float>(vocab, vocab, spread);
      for (float& x : logits) x = std::round(x * 64) / 64;  // makes ties
      if (vocab > 50) logits[33] = -kInfinity;
      SamplerScratch scratch(vocab);
      for (const int32_t top_k : {0, 1, 2, 50, 3000}) {
        for (const float top_p : {1.0f, 0.97f, 0.5f, 0.01f}) {
          for (const std::vector<int32_t>& banned : {std::vector<int32_t>{}, {1}, {0, 1, 5, 40, 41}}) {
            if (!banned.empty() && banned.back() >= vocab) continue;
            const SamplingFilter filter{.temperature = 0.8f, .top_k = top_k, .top_p = top_p, .banned_ids = banned};
            double margin = 0;
            const std::vector<int32_t> want = KeptByDefinition(logits, filter, &margin);
            const Sample got = SampleToken(logits, filter, 0.37, scratch);
            if (margin < 1e-6) continue;  // float32 weights may see the border on the other side
            ++compared;
            ASSERT_EQ(IdsOf(got.filter, logits), want) << vocab << " " << spread << " " << top_k << " " << top_p;
            if (got.filter.kind == Kind::kCut) {
              ASSERT_LE(2 * got.filter.ids.size(), static_cast<size_t>(vocab) + 5);
            }
            if (got.filter.kind == Kind::kKept) {
              ASSERT_LE(2 * got.filter.ids.size(), static_cast<size_t>(vocab));
            }
            ASSERT_TRUE(std::is_sorted(got.filter.ids.begin(), got.filter.ids.end()));
            // The learner, given the record, finds the same bits.
            const RowStatistics s = ComputeStatistics(logits, InverseTemperature(0.8f), got.filter);
            ASSERT_EQ(LogProb(s, logits[got.id], InverseTemperature(0.8f)), got.logprob);
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(Sampling, DrawsByInverseCumulativeDistributionInIdOrder) {
  for (const int64_t vocab : {5, 4096, 4097, 10000}) {
    const std::vector<float> logits = TestNormal<float>(vocab, 5 + vocab, 2);
    SamplerScratch scratch(vocab);
    for (const SamplingFilter& filter : {SamplingFilter{}, SamplingFilter{.temperature = 0.7f, .top_k = 3},
                                         SamplingFilter{.temperature = 1.3f, .top_p = 0.9f}}) {
      double margin = 0;
      const std::vector<int32_t> kept = KeptByDefinition(logits, filter, &margin);
      const double inverse = InverseTemperature(filter.temperature);
      double total = 0;
      for (int32_t id : kept) total += std::exp(logits[id] * inverse);
      for (int draw = 0; draw < 50; ++draw) {
        const double u = draw == 0 ? 0.0 : draw == 1 ? 1 - 0x1p-53 : TestUniform(99, draw);
        const Sample got = SampleToken(logits, filter, u, scratch);
        // u lies within the id's share of the cumulative distribution, up to the sums' roundings.
        double before = 0;
        for (int32_t id : kept) {
          if (id == got.id) break;
          before += std::exp(logits[id] * inverse);
        }
        const double p = std::exp(logits[got.id] * inverse) / total;
        ASSERT_GE(u, before / total - 1e-5);
        ASSERT_LE(u, before / total + p + 1e-5);
        ASSERT_NEAR(got.logprob, std::log(p), 1e-5);
      }
    }
  }
}

TEST(Sampling, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f};
  SamplerScratch scratch(4);
  const int draws = 20000;
  std::vector<int> counts(4);
  for (int i = 0; i < draws; ++i) ++counts[SampleToken(logits, {}, TestUniform(3, i), scratch).id];
  double total = 0;
  for (float x : logits) total += std::exp(x);
  for (int id = 0; id < 4; ++id) {
    const double p = std::exp(logits[id]) / total;
    EXPECT_NEAR(counts[id], draws * p, 5 * std::sqrt(draws * p * (1 - p)));  // five standard deviations
  }
}

TEST(Sampling, GreedyTakesTheLowestOfTheLargest) {
  std::vector<float> logits(9000, 0.0f);
  logits[4500] = logits[8000] = 3;
  SamplerScratch scratch(9000);
  const SamplingFilter greedy{.temperature = 0};
  Sample got = SampleToken(logits, greedy, 0.9, scratch);
  EXPECT_EQ(got.id, 4500);
  EXPECT_EQ(got.logprob, 0.0f);
  EXPECT_EQ(got.filter.kind, Kind::kKept);
  EXPECT_EQ(std::vector<int32_t>(got.filter.ids.begin(), got.filter.ids.end()), std::vector<int32_t>{4500});
  const std::vector<int32_t> banned = {4500, 8999};
  EXPECT_EQ(SampleToken(logits, {.temperature = 0, .banned_ids = banned}, 0, scratch).id, 8000);
  EXPECT_EQ(ArgMax(logits, banned), 8000);
}

TEST(Sampling, NanShowsInTheLogProb) {
  std::vector<float> logits(100, 0.0f);
  logits[7] = std::numeric_limits<float>::quiet_NaN();
  SamplerScratch scratch(100);
  EXPECT_TRUE(std::isnan(SampleToken(logits, {}, 0.5, scratch).logprob));
  EXPECT_TRUE(std::isnan(SampleToken(logits, {.temperature = 0}, 0.5, scratch).logprob));
  EXPECT_TRUE(std::isnan(SampleToken(logits, {.top_k = 5}, 0.5, scratch).logprob));
}

std::vector<float> Floats(const Json& list) {
  std::vector<float> values;
  for (const Json& x : list) values.push_back(x.is_string() ? -kInfinity : x.get<float>());
  return values;
}

TEST(Sampling, GoldenFilters) {
  LOCKSTEP_NEEDS_SHARED();
  const auto text = ReadFile(testing::SharedPath("goldens/algos/sampling.json"));
  ASSERT_TRUE(text.ok());
  const auto golden = ParseJson(*text);
  ASSERT_TRUE(golden.ok());
  int ran = 0;
  for (const Json& c : (*golden)["cases"]) {
    const Json& in = c["inputs"];
    const std::string operation = in.value("operation", "");
    if (!operation.empty() && operation != "greedy") continue;  // the others are sums over these
    const std::vector<float> logits = Floats(in["logits"]);
    SamplerScratch scratch(static_cast<int64_t>(logits.size()));
    if (operation == "greedy") {
      EXPECT_EQ(SampleToken(logits, {.temperature = 0}, 0.5, scratch).id, c["expected"]["token"].get<int32_t>());
      ++ran;
      continue;
    }
    const std::vector<int32_t> banned = in["banned_ids"].get<std::vector<int32_t>>();
    const float temperature = in["temperature"].get<float>();
    const SamplingFilter filter{temperature, in["top_k"].get<int32_t>(), in["top_p"].get<float>(), banned};
    const std::vector<int32_t> kept = c["expected"]["kept_ids"].get<std::vector<int32_t>>();
    const std::vector<double> logprobs = c["expected"]["rollout_logprob_of_kept"].get<std::vector<double>>();
    for (int draw = 0; draw < 30; ++draw) {
      const Sample got = SampleToken(logits, filter, TestUniform(ran, draw), scratch);
      ASSERT_EQ(IdsOf(got.filter, logits), kept) << c["id"];
      const auto at = std::lower_bound(kept.begin(), kept.end(), got.id) - kept.begin();
      ASSERT_EQ(kept[at], got.id);
      ASSERT_NEAR(got.logprob, logprobs[at], c["tolerance"]["f32"].get<double>()) << c["id"];
    }
    ++ran;
  }
  RecordProperty("cases", ran);
  EXPECT_GE(ran, 20);
}

}  // namespace
}  // namespace lockstep::model
