#include "runtime/job/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "runtime/job/yaml_reader.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::job {
namespace {

using ::lockstep::testing::StatusIs;
using ::lockstep::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Commands, ExitCodesTellBadInputFromFailure) {
  EXPECT_EQ(ExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCode(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitCode(absl::NotFoundError("")), 2);
  EXPECT_EQ(ExitCode(absl::UnimplementedError("")), 2);
  EXPECT_EQ(ExitCode(absl::AbortedError("")), 1);
  EXPECT_EQ(ExitCode(absl::UnavailableError("")), 1);
  EXPECT_EQ(ExitCode(absl::InternalError("")), 1);
}

TEST(Commands, ConfigPrintsWhatTheReaderReads) {
  std::ostringstream all;
  ASSERT_OK(ConfigCommand({}, all));
  ASSERT_OK_AND_ASSIGN(const Config config, ParseConfig(all.str(), "all.yaml", {"model.path=m"}));
  EXPECT_EQ(config.options.learner.schedule.base, LearnerOptions().schedule.base);
  EXPECT_THAT(ConfigCommand({"", {"run.seed=1"}}, all),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--config")));
  TempDir dir;
  std::ostringstream effective;
  ASSERT_OK(ConfigCommand({dir.Write("c.yaml", "model: {path: m}\n"), {"run.seed=77"}}, effective));
  EXPECT_THAT(effective.str(), AllOf(HasSubstr("  path: m\n"), HasSubstr("  seed: 77\n"), HasSubstr("  n: 8\n")));
}

constexpr char kQwenConfig[] = R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
  "vocab_size": 100, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
  "hidden_act": "silu", "tie_word_embeddings": true, "torch_dtype": "bfloat16"})";

TEST(Commands, PlanNeedsNothingButTheModelsConfiguration) {
  TempDir dir;
  dir.Write("config.json", kQwenConfig);
  const std::string path = dir.Write("c.yaml", "model: {path: \"" + dir.path() + "\"}\ndata: {train: [none.jsonl]}\n");
  std::ostringstream out;
  ASSERT_OK(PlanCommand({path, {}}, 3, out));
  EXPECT_THAT(out.str(), AllOf(HasSubstr("qwen2, 2 layers"), HasSubstr("learner"), HasSubstr("rollout"),
                               HasSubstr("activations"), HasSubstr("key-value cache"), HasSubstr("FLOP to train")));
  EXPECT_THAT(PlanCommand({path, {}}, 99, out), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too many")));
  EXPECT_THAT(PlanCommand({path, {"model.path=" + dir.File("none")}}, 1, out),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

}  // namespace
}  // namespace lockstep::job
