// `lockstep eval` on a tiny random model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/integration/tiny_run.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// stdout alone: the report.
class EvalTest : public TinyRun {
 protected:
  Outcome Eval(int np, const std::string& overrides, const std::string& extra = "") {
    return Shell("(" + CommandLine("eval", np, "unused", overrides, extra) + " 2>" + dir_.File("stderr.txt") + ")");
  }
  std::string EvalData() { return absl::StrCat("data.eval=[", dir_.File("data.jsonl"), "]"); }
  // Rewards the length of a completion in thirds, so that there is something to count on a random model.
  std::string LengthReward(const std::string& more = "") {
    const std::string script =
        dir_.Write("reward.py",
                   "import json, sys\n"
                   "for line in sys.stdin:\n"
                   "    s = json.loads(line)\n"
                   "    n = len(s['completion'])\n" +
                       more + "    print(json.dumps({'id': s['id'], 'reward': n % 3 / 2}), flush=True)\n");
    return absl::StrCat("reward: {kind: process, command: [python3, ", script, "]}\n");
  }
};

TEST_F(EvalTest, GivesTheNumbersOfTheTrainLoopForTheSameWeights) {
  for (const char* dtype : {"f32", "bf16"}) {
    const std::string common = absl::StrCat(EvalData(), " eval.n=3 model.dtype=", dtype);
    const Outcome train = Train(1, dtype, common + " run.steps=2", LengthReward());
    ASSERT_EQ(train.exit_code, 0) << train.output;
    const std::vector<Json> metrics = Metrics(dtype);
    ASSERT_EQ(metrics.size(), 4u) << "two evaluations and two steps";
    struct Side {
      const Json& trained;
      std::string path;
    };
    for (const Side& side : {Side{metrics.front(), dir_.File("model")},
                             Side{metrics.back(), dir_.File(absl::StrCat(dtype, "/exports/final"))}}) {
      for (int np : {1, 3}) {
        const Outcome eval = Eval(np, common + " model.path=" + side.path, LengthReward());
        ASSERT_EQ(eval.exit_code, 0) << eval.output;
        const Json report = Json::parse(eval.output);
        EXPECT_GT(side.trained["eval/avg"].get<double>(), 0);
        EXPECT_EQ(report["avg"], side.trained["eval/avg"]);
        for (const char* pass : {"pass@1", "pass@2", "pass@3"}) {
          EXPECT_EQ(report[pass], side.trained[absl::StrCat("eval/", pass)]) << pass;
        }
        EXPECT_EQ(report["mean_tokens"], side.trained["eval/mean_tokens"]);
        EXPECT_EQ(report["num_prompts"], 12);
        EXPECT_EQ(report["num_samples"], 36);
      }
    }
    if (dtype == std::string("f32")) {  // an export in bf16 has rounded the master weights
      const Json last = Json::parse(Eval(1, common + " model.path=" + dir_.File("f32/exports/final")).output);
      EXPECT_EQ(last["weight_hash"], HashOf(train));
    }
  }
}

TEST_F(EvalTest, InvalidSamplesAreCountedWithTheirReasonAndInNoAverage) {
  const std::string reward = LengthReward(
      "    if n % 2:\n"
      "        print(json.dumps({'id': s['id'], 'error': 'odd'}), flush=True)\n"
      "        continue\n");
  const Outcome eval = Eval(1, EvalData(), reward);
  ASSERT_EQ(eval.exit_code, 0) << eval.output;
  const Json report = Json::parse(eval.output);
  const int64_t invalid = report["num_invalid"];
  EXPECT_GT(invalid, 0);
  EXPECT_LT(invalid, 48);
  EXPECT_EQ(report["invalid_reasons"], Json({{"odd", invalid}}));
}

TEST_F(EvalTest, NeedsDataThatTheRewardCanUse) {
  const Outcome none = Shell(CommandLine("eval", 1, "unused", ""));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.output, HasSubstr("data.eval is empty"));
  const std::string rows = dir_.Write("bad.jsonl", "{\"prompt\":\"1\"}\n");
  const Outcome bad = Shell(CommandLine("eval", 1, "unused", absl::StrCat("data.eval=[", rows, "]")));
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.output, HasSubstr("bad.jsonl:1"));
  EXPECT_THAT(bad.output, HasSubstr("answer"));
}

}  // namespace
}  // namespace lockstep
