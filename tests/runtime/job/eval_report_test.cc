#include "runtime/job/eval_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::job {
namespace {

using ::testing::EndsWith;

// Share of the k-subsets of n samples, the first c of which pass, that hold one that passes: by looking at each.
double PassByCounting(int n, int c, int k) {
  int subsets = 0, passing = 0;
  for (unsigned subset = 0; subset < 1u << n; ++subset) {
    if (__builtin_popcount(subset) != k) continue;
    ++subsets;
    passing += (subset & ((1u << c) - 1)) != 0;
  }
  return static_cast<double>(passing) / subsets;
}

TEST(PassAtK, IsTheShareOfSubsetsThatHoldAPassingSample) {
  for (int n = 1; n <= 8; ++n) {
    for (int c = 0; c <= n; ++c) {
      for (int k = 1; k <= n; ++k) {
        EXPECT_NEAR(PassAtK(n, c, k), PassByCounting(n, c, k), 1e-15) << n << " " << c << " " << k;
      }
    }
  }
}

TEST(PassAtK, ExactCases) {
  EXPECT_DOUBLE_EQ(PassAtK(4, 1, 1), 0.25);
  EXPECT_DOUBLE_EQ(PassAtK(4, 1, 2), 0.5);
  EXPECT_DOUBLE_EQ(PassAtK(4, 2, 2), 1 - 1.0 / 6);
  EXPECT_EQ(PassAtK(4, 0, 4), 0);
  EXPECT_EQ(PassAtK(4, 1, 4), 1);
  EXPECT_DOUBLE_EQ(PassAtK(1000, 1, 500), 0.5) << "binomials that overflow";
}

EvalSample Sample(double reward, int64_t tokens = 10) { return {reward, "", tokens, true}; }
EvalSample Invalid(const std::string& error) { return {0, error, 10, true}; }

TEST(EvalReport, AveragesOverPromptsAndSamples) {
  const EvalReport report =
      MakeEvalReport({Sample(1), Sample(0), Sample(1.5, 16), Sample(0.5), Sample(0), Sample(0)}, 3);
  EXPECT_EQ(report.num_prompts, 2);
  EXPECT_EQ(report.num_samples, 6);
  EXPECT_DOUBLE_EQ(report.average, 3.0 / 6);
  EXPECT_DOUBLE_EQ(report.mean_tokens, 11);
  ASSERT_EQ(report.pass.size(), 3u);
  EXPECT_DOUBLE_EQ(report.pass[0], (2.0 / 3 + 0) / 2) << "half a point is no pass";
  EXPECT_DOUBLE_EQ(report.pass[1], 0.5);
  EXPECT_DOUBLE_EQ(report.pass[2], 0.5);
}

TEST(EvalReport, LeavesInvalidSamplesOutAndCountsThem) {
  const EvalReport report = MakeEvalReport({Sample(1), Invalid("late"), Sample(0), Sample(0)}, 2);
  EXPECT_EQ(report.num_invalid, 1);
  EXPECT_EQ(report.invalid_reasons.at("late"), 1);
  EXPECT_DOUBLE_EQ(report.average, 1.0 / 3);
  EXPECT_DOUBLE_EQ(report.pass[0], 0.5);
  EXPECT_DOUBLE_EQ(report.pass[1], 0) << "only the second prompt has two valid samples";
  const EvalReport nothing = MakeEvalReport({Invalid("late"), Invalid("dead"), Invalid("dead"), Invalid("dead")}, 2);
  EXPECT_TRUE(std::isnan(nothing.average));
  EXPECT_TRUE(ToJson(nothing)["avg"].is_null());
  EXPECT_TRUE(ToJson(nothing)["pass@2"].is_null());
  EXPECT_THAT(ToText(nothing), EndsWith("; left out: 4 of 4 samples are invalid (3: dead)"));
}

TEST(EvalReport, TextNamesPowersOfTwoAndTheLast) {
  const std::vector<EvalSample> samples(5, Sample(1));
  EXPECT_EQ(ToText(MakeEvalReport(samples, 5)),
            "avg@5 1.000, pass@1 1.000, pass@2 1.000, pass@4 1.000, pass@5 1.000 on 1 prompts, 10.0 tokens on average");
}

TEST(EvalReport, MetricsAndJsonNameEveryK) {
  const EvalReport report = MakeEvalReport({Sample(1), Sample(0), Sample(0)}, 3);
  StepMetrics metrics;
  AddMetrics(report, metrics);
  const Json line = ToJson(metrics), object = ToJson(report);
  for (const char* name : {"pass@1", "pass@2", "pass@3"}) {
    EXPECT_EQ(line[std::string("eval/") + name], object[name]) << name;
  }
  EXPECT_EQ(line["eval/avg"], object["avg"]);
  EXPECT_EQ(line["eval/invalid"], 0);
}

}  // namespace
}  // namespace lockstep::job
