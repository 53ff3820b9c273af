#include "runtime/job/sample_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace lockstep::job {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::HasSubstr;

model::ModelConfig ModelWithContext(int64_t positions) {
  model::ModelConfig config;
  config.num_layers = 1;
  config.num_heads = 1;
  config.num_kv_heads = 1;
  config.head_dim = 8;
  config.max_position_embeddings = positions;
  return config;
}

RunOptions Completions(int32_t max_tokens) {
  RunOptions options;
  options.rollout.sampling.max_tokens = max_tokens;
  options.rollout.max_batch = 4;
  return options;
}

TEST(SampleLimits, WithoutAPromptLimitTheContextDecidesUpToADefault) {
  ASSERT_OK_AND_ASSIGN(const SampleLimits small, LimitsOf(Completions(100), ModelWithContext(2048)));
  EXPECT_EQ(small.prompt_tokens, 1948);
  EXPECT_EQ(small.context_tokens(), 2048);
  ASSERT_OK_AND_ASSIGN(const SampleLimits large, LimitsOf(Completions(6000), ModelWithContext(131072)));
  EXPECT_EQ(large.prompt_tokens, 4096);
  EXPECT_EQ(large.context_tokens(), 10096);
}

TEST(SampleLimits, AWrittenPromptLimitIsTakenAsItIs) {
  RunOptions options = Completions(100);
  options.data.max_prompt_tokens = 10000;
  ASSERT_OK_AND_ASSIGN(const SampleLimits limits, LimitsOf(options, ModelWithContext(131072)));
  EXPECT_EQ(limits.prompt_tokens, 10000);
  ASSERT_OK_AND_ASSIGN(const rollout::EngineOptions engine, EngineOptionsOf(options, ModelWithContext(131072)));
  EXPECT_EQ(engine.max_context, 10100);
  EXPECT_THAT(LimitsOf(options, ModelWithContext(10099)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("data.max_prompt_tokens is 10000")));
}

TEST(SampleLimits, TheDefaultCacheHoldsTheBatchUpToABound) {
  RunOptions options = Completions(128);
  options.data.max_prompt_tokens = 64;
  EXPECT_EQ(EngineOptionsOf(options, ModelWithContext(2048))->kv_blocks, 4 * 3);
  options.rollout.max_batch = 2000;
  EXPECT_EQ(EngineOptionsOf(options, ModelWithContext(2048))->kv_blocks, 4096);
  options.data.max_prompt_tokens = 64 * 5000;
  EXPECT_EQ(EngineOptionsOf(options, ModelWithContext(1 << 20))->kv_blocks, 5002) << "one sample has room always";
}

TEST(SampleLimits, ACacheThatIsWrittenIsNeverChanged) {
  RunOptions options = Completions(128);
  options.data.max_prompt_tokens = 64;
  options.rollout.kv_blocks = 3;
  EXPECT_EQ(EngineOptionsOf(options, ModelWithContext(2048))->kv_blocks, 3);
  options.rollout.kv_blocks = 2;
  EXPECT_THAT(EngineOptionsOf(options, ModelWithContext(2048)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "rollout.kv_blocks gives a cache of 2 blocks: one sample of 192 tokens needs 3"));
  options.rollout.kv_blocks = int64_t{1} << 40;
  EXPECT_THAT(EngineOptionsOf(options, ModelWithContext(2048)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("it holds at most")));
  options.rollout.kv_blocks = 0;
  options.rollout.kv_memory_mb = INT64_MAX;
  EXPECT_THAT(EngineOptionsOf(options, ModelWithContext(2048)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rollout.kv_memory_mb gives a cache")));
}

}  // namespace
}  // namespace lockstep::job
