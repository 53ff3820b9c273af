// Whole runs of the program on a tiny random model: the same weights on any number of ranks, and what stops a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "model/export.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"
#include "text/bpe.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string output;
};

Outcome Shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  CHECK(pipe != nullptr);
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof(buffer), pipe)) outcome.output.append(buffer, n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

class TrainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const model::LoadedModel tiny = testing::TinyModel(model::Architecture::kLlama, 5);
    model::ModelConfig config = tiny.config;
    config.vocab_size = 259;  // bytes and three more
    model::LoadedModel wide{config, model::Parameters(config)};
    for (int64_t i = 0; i < wide.parameters.size(); ++i) {
      wide.parameters.data()[i] =
          static_cast<float>(UniformDouble({9, RandomPurpose::kTest}, {.ordinal = i}) - 0.5) * 0.6f;
    }
    ASSERT_OK(model::ExportHf(config, wide.parameters, DType::kF32, dir_.File("model")));
    Json vocab = Json::object();
    for (int b = 0; b < 256; ++b) vocab[text::ByteToCharacter(static_cast<uint8_t>(b))] = b;
    Json added = Json::array();
    for (int i = 0; i < 3; ++i) {
      const char* names[] = {"<s>", "</s>", "<end>"};
      added.push_back({{"id", 256 + i}, {"content", names[i]}, {"special", true}, {"normalized", false}});
    }
    const Json tokenizer = {
        {"added_tokens", added},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
    dir_.Write("model/tokenizer.json", tokenizer.dump());
    dir_.Write(
        "model/tokenizer_config.json",
        R"({"bos_token":"<s>","eos_token":"</s>","chat_template":"{% for m in messages %}{{ m.content }}{% endfor %}="})");
    std::string rows;
    for (int i = 0; i < 12; ++i) {
      rows += absl::StrCat("{\"messages\":[{\"role\":\"user\",\"content\":\"", i, "+", i, "\"}],\"answer\":\"", i % 10,
                           "\"}\n");
    }
    dir_.Write("data.jsonl", rows);
  }

  std::string Config(const std::string& extra = "") {
    return dir_.Write("run.yaml", absl::StrCat("run: {steps: 3, seed: 3}\n"
                                               "model: {path: ",
                                               dir_.File("model"),
                                               "}\n"
                                               "data: {train: [",
                                               dir_.File("data.jsonl"),
                                               "], max_prompt_tokens: 32}\n"
                                               "rollout: {prompts_per_step: 4, n: 4, max_tokens: 24}\n"
                                               "learner: {lr: 1e-3, micro_batch_tokens: 128}\n",
                                               extra));
  }

  Outcome Train(int np, const std::string& name, const std::string& overrides, const std::string& extra = "") {
    // Open MPI leaks in plugins that it has unloaded: under ASan leaks are looked for in runs without it.
    const std::string mpirun =
        np == 1
            ? ""
            : absl::StrCat("ASAN_OPTIONS=detect_leaks=0 mpirun --allow-run-as-root --oversubscribe --bind-to none -np ",
                           np, " ");
    return Shell(absl::StrCat(mpirun, LOCKSTEP_PROGRAM_PATH, " train --config ", Config(extra),
                              " run.dir=", dir_.File(name), " ", overrides));
  }

  static std::string HashOf(const Outcome& outcome) {
    const size_t at = outcome.output.find("weight hash ");
    return at == std::string::npos ? "" : outcome.output.substr(at + 12, 16);
  }

  testing::TempDir dir_;
};

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
  std::ifstream metrics(dir_.File("run/metrics.jsonl"));
  int steps = 0;
  for (std::string line; std::getline(metrics, line); ++steps) {
    const Json step = Json::parse(line);
    EXPECT_GT(step["check/tokens"].get<double>(), 0);
    EXPECT_EQ(step["check/differing"].get<double>(), 0);
    const double generated = step["completion/mean_tokens"].get<double>() * 16;
    EXPECT_EQ(step["check/tokens"].get<double>(), generated);
  }
  EXPECT_EQ(steps, 3);
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
  std::ifstream metrics(dir_.File("run/metrics.jsonl"));
  std::string line;
  std::getline(metrics, line);
  EXPECT_EQ(Json::parse(line)["reward/invalid"].get<double>(), 0);
}

}  // namespace
}  // namespace lockstep
