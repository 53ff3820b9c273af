// Steps whose gradient is not finite, from rewards that a user's process could give; and exports along the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/tiny_run.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class BadGradientTest : public TinyRun {
 protected:
  // A process reward; `value` is a Python expression over `ordinal` and `n`, the completion's length.
  std::string Reward(const std::string& value) {
    const std::string script = dir_.Write("reward.py",
                                          "import json, sys\n"
                                          "for line in sys.stdin:\n"
                                          "    s = json.loads(line)\n"
                                          "    n, ordinal = len(s['completion']), int(s['id'].split('/')[0])\n"
                                          "    print(json.dumps({'id': s['id'], 'reward': " +
                                              value + "}), flush=True)\n");
    return absl::StrCat("reward: {kind: process, command: [python3, ", script, "]}\n");
  }
  // The hash of a model folder's weights.
  std::string WeightHash(const std::string& path) {
    const Outcome eval = Shell("(" +
                               CommandLine("eval", 1, "unused",
                                           absl::StrCat("model.dtype=f32 eval.n=1 eval.max_prompts=1 data.eval=[",
                                                        dir_.File("data.jsonl"), "] model.path=", path)) +
                               " 2>/dev/null)");
    EXPECT_EQ(eval.exit_code, 0);
    return eval.exit_code == 0 ? Json::parse(eval.output)["weight_hash"].get<std::string>() : "";
  }
  const std::string overrides_ = "model.dtype=f32 algorithm.advantage=dr_grpo ";
};

TEST_F(BadGradientTest, SkipsTheStepAndGoesOn) {
  const Outcome run = Train(1, "run", overrides_, Reward("(1e300 if ordinal < 4 else 1.0) * (n % 2)"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::vector<Json> steps = Metrics("run");
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0]["optimizer/skipped"], 1);
  EXPECT_TRUE(steps[0]["optimizer/grad_norm"].is_null());
  EXPECT_EQ(steps[1]["optimizer/skipped"], 0);
  EXPECT_EQ(steps[2]["optimizer/skipped"], 0);
  EXPECT_EQ(steps[0]["weight_hash"], WeightHash(dir_.File("model"))) << "a skipped step changes nothing";
  EXPECT_NE(steps[1]["weight_hash"], steps[0]["weight_hash"]);
}

TEST_F(BadGradientTest, TooManyInARowStopTheRunWithTheLastGoodWeights) {
  const Outcome run = Train(1, "run", overrides_ + "run.steps=9 run.max_skipped_steps=2",
                            Reward("(1e300 if ordinal >= 4 else 1.0) * (n % 2)"));
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.output, HasSubstr("2 steps in a row had a gradient that is not finite"));
  const std::vector<Json> steps = Metrics("run");
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(RunStatus("run")["state"], "failed");
  EXPECT_EQ(RunStatus("run")["weight_hash"], steps[0]["weight_hash"]);
  EXPECT_EQ(WeightHash(dir_.File("run/exports/final")), steps[0]["weight_hash"]);
  EXPECT_NE(WeightHash(dir_.File("model")), steps[0]["weight_hash"]);
}

TEST_F(BadGradientTest, ARewardThatIsNotFiniteIsAnInvalidSample) {
  const Outcome run = Train(1, "run", overrides_, Reward("float('inf') if n % 2 else 1.0"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("samples are invalid and left out: the reward is not a finite number"));
  const std::vector<Json> steps = Metrics("run");
  EXPECT_GT(steps[0]["reward/invalid"].get<int>(), 0);
  EXPECT_EQ(steps[0]["reward/mean"], 1);
  for (const Json& step : steps) EXPECT_EQ(step["optimizer/skipped"], 0);
}

TEST_F(BadGradientTest, SaveEveryExportsAlongTheWay) {
  const Outcome run = Train(1, "run", "model.dtype=f32 run.steps=5 run.save_every=2");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  std::vector<std::string> exports;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.File("run/exports"))) {
    exports.push_back(entry.path().filename());
  }
  EXPECT_THAT(exports, ::testing::UnorderedElementsAre("step_000002", "step_000004", "final"));
  const std::vector<Json> steps = Metrics("run");
  EXPECT_EQ(WeightHash(dir_.File("run/exports/step_000002")), steps[1]["weight_hash"]);
  EXPECT_EQ(WeightHash(dir_.File("run/exports/final")), steps[4]["weight_hash"]);
}

}  // namespace
}  // namespace lockstep
