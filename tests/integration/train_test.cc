// Whole runs of the program on a tiny random model: the same weights on any number of ranks, and what stops a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "tests/integration/tiny_run.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TrainTest : public TinyRun {};

TEST_F(TrainTest, AnyNumberOfRanksGivesTheSameWeights) {
  for (const char* dtype : {"f32", "bf16"}) {
    const std::string overrides = absl::StrCat("model.dtype=", dtype);
    const Outcome one = Train(1, absl::StrCat("one-", dtype), overrides);
    ASSERT_EQ(one.exit_code, 0) << one.output;
    ASSERT_FALSE(HashOf(one).empty()) << one.output;
    const Outcome again = Train(1, absl::StrCat("again-", dtype), overrides + " compute.threads=1");
    EXPECT_EQ(HashOf(again), HashOf(one)) << again.output;
    for (int np : {2, 3}) {
      const Outcome many = Train(np, absl::StrCat("np", np, "-", dtype), overrides);
      EXPECT_EQ(many.exit_code, 0) << many.output;
      EXPECT_EQ(HashOf(many), HashOf(one)) << many.output;
    }
  }
}

TEST_F(TrainTest, EveryTrainedTokenIsChecked) {
  const Outcome run = Train(1, "run", "");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::vector<Json> steps = Metrics("run");
  for (const Json& step : steps) {
    EXPECT_GT(step["check/tokens"].get<double>(), 0);
    EXPECT_EQ(step["check/differing"].get<double>(), 0);
    const double generated = step["completion/mean_tokens"].get<double>() * 16;
    EXPECT_EQ(step["check/tokens"].get<double>(), generated);
  }
  EXPECT_EQ(steps.size(), 3u);
  EXPECT_TRUE(ReadFile(dir_.File("run/exports/final/model.safetensors")).ok());
  EXPECT_TRUE(ReadFile(dir_.File("run/trajectories/step_000003.jsonl")).ok());
}

TEST_F(TrainTest, SeveralOptimizerStepsAndOtherLossesRun) {
  const Outcome run = Train(
      1, "run", "learner.mini_batches=2 algorithm.loss=gspo algorithm.kl_loss_coef=0.01 algorithm.advantage=rloo");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const Outcome two = Train(
      2, "two", "learner.mini_batches=2 algorithm.loss=gspo algorithm.kl_loss_coef=0.01 algorithm.advantage=rloo");
  EXPECT_EQ(HashOf(two), HashOf(run)) << two.output;
}

TEST_F(TrainTest, ATerminalSeesOneProgressLineAndALogPlainLines) {
  const Outcome plain = Train(1, "plain", "");
  ASSERT_EQ(plain.exit_code, 0) << plain.output;
  EXPECT_THAT(plain.output, HasSubstr(" step 3/3  reward "));
  EXPECT_THAT(plain.output, Not(HasSubstr("\x1b")));
  const std::string in_terminal =
      "TERM=xterm python3 -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' ";
  const Outcome drawn = Shell(in_terminal + CommandLine("train", 1, "drawn", ""));
  ASSERT_EQ(drawn.exit_code, 0) << drawn.output;
  EXPECT_THAT(drawn.output, HasSubstr("\rstep 3/3  reward "));
  EXPECT_THAT(drawn.output, Not(HasSubstr(" step 3/3")));
  const absl::StatusOr<std::string> log = ReadFile(dir_.File("drawn/log.txt"));
  ASSERT_TRUE(log.ok());
  EXPECT_THAT(*log, HasSubstr(" step 3/3  reward "));
  EXPECT_THAT(*log, Not(HasSubstr("\x1b")));
}

TEST_F(TrainTest, BadInputIsOneLineAndExitCodeTwo) {
  const Outcome key = Train(1, "a", "rollout.tempreature=1");
  EXPECT_EQ(key.exit_code, 2);
  EXPECT_THAT(key.output, HasSubstr("tempreature"));
  dir_.Write("data.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"1\"}]}\n\n");
  const Outcome data = Train(1, "b", "");
  EXPECT_EQ(data.exit_code, 2);
  EXPECT_THAT(data.output, HasSubstr("data.jsonl:2"));
  dir_.Write("data.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"" + std::string(100, 'x') + "\"}]}\n");
  const Outcome longer = Train(1, "c", "");
  EXPECT_EQ(longer.exit_code, 2);
  EXPECT_THAT(longer.output, HasSubstr("data.max_prompt_tokens"));
}

TEST_F(TrainTest, WhatPlanRefusesIsRefusedInTheSameWordsBeforeAnythingIsMade) {
  for (const char* overrides : {"rollout.kv_blocks=1 rollout.max_tokens=100", "rollout.max_tokens=100000",
                                "rollout.prompts_per_step=2 learner.mini_batches=3", "model.path=/nonexistent"}) {
    const Outcome plan = Shell(CommandLine("plan", 1, "run", overrides));
    EXPECT_EQ(plan.exit_code, 2) << plan.output;
    for (const char* command : {"train", "eval"}) {
      const Outcome outcome = Shell(CommandLine(command, 1, "run", overrides));
      EXPECT_EQ(outcome.exit_code, 2);
      EXPECT_EQ(outcome.output, plan.output);
    }
  }
  EXPECT_FALSE(ReadFile(dir_.File("run/config.yaml")).ok());
}

TEST_F(TrainTest, SeveralRanksComplainOnce) {
  const Outcome outcome = Train(3, "run", "rollout.kv_blocks=1 rollout.max_tokens=100");
  EXPECT_EQ(outcome.exit_code, 2);
  const size_t first = outcome.output.find("rollout.kv_blocks gives a cache");
  ASSERT_NE(first, std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("rollout.kv_blocks gives a cache", first + 1), std::string::npos) << outcome.output;
}

TEST_F(TrainTest, AProcessRewardThatDiesIsStartedAgain) {
  // Dies on every fifth request of its life; the request is sent again to its successor.
  const std::string script =
      dir_.Write("reward.py",
                 "import json, sys\n"
                 "for i, line in enumerate(sys.stdin):\n"
                 "    s = json.loads(line)\n"
                 "    if i == 4: sys.exit(3)\n"
                 "    print(json.dumps({'id': s['id'], 'reward': float(len(s['completion']) % 2)}), flush=True)\n");
  const Outcome run =
      Train(1, "run", "run.steps=1",
            absl::StrCat("reward: {kind: process, command: [python3, ", script, "], num_processes: 2}\n"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("starting it again"));
  EXPECT_EQ(Metrics("run").at(0)["reward/invalid"].get<double>(), 0);
}

}  // namespace
}  // namespace lockstep
