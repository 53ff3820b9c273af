#include "runtime/job/footprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/packed_model.h"
#include "model/training_pass.h"
#include "tests/testing/status_matchers.h"

namespace lockstep::job {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::StartsWith;

// hidden 8, 2 heads of 4 (1 for keys), intermediate 16, 10 ids, 3 layers, tied head.
model::ModelConfig SmallModel() {
  model::ModelConfig config;
  config.hidden_size = 8;
  config.num_layers = 3;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 4;
  config.intermediate_size = 16;
  config.vocab_size = 10;
  config.max_position_embeddings = 512;
  config.tie_word_embeddings = true;
  return config;
}

RunOptions SmallRun() {
  RunOptions options;
  options.model.path = "m";
  options.model.dtype = DType::kF32;
  options.data.max_prompt_tokens = 10;
  options.rollout.prompts_per_step = 2;
  options.rollout.n = 3;
  options.rollout.sampling.max_tokens = 20;
  options.rollout.max_batch = 6;
  return options;
}

int64_t BytesOf(const Footprint& footprint, const std::string& what) {
  for (const Footprint::Memory& piece : footprint.memory) {
    if (what == piece.what) return piece.bytes;
  }
  return -1;
}

TEST(Footprint, CountsParametersAndTheirCopies) {
  ASSERT_OK_AND_ASSIGN(const Footprint footprint, EstimateFootprint(SmallRun(), SmallModel()));
  // A layer: q and o 8x8, k and v 4x8, gate, up and down 16x8, two norms of 8; then embedding 10x8 and the last norm.
  const int64_t parameters = 3 * (2 * 64 + 2 * 32 + 3 * 128 + 16) + 80 + 8;
  EXPECT_EQ(footprint.num_parameters, parameters);
  EXPECT_EQ(BytesOf(footprint, "master weights, f32"), 4 * parameters);
  EXPECT_EQ(BytesOf(footprint, "optimizer moments, 2 x f32"), 8 * parameters);
  EXPECT_EQ(BytesOf(footprint, "gradient sums, int64"), 8 * parameters);
  EXPECT_EQ(BytesOf(footprint, "weights, packed, two buffers"),
            2 * model::PackedLayout(SmallModel(), DType::kF32).num_bytes());
  EXPECT_EQ(BytesOf(footprint, "reference weights, packed"), -1) << "no reference without a KL coefficient";
}

TEST(Footprint, TransposedWeightsAreWhatTheLearnerAllocates) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    RunOptions options = SmallRun();
    options.model.dtype = dtype;
    ASSERT_OK_AND_ASSIGN(const Footprint footprint, EstimateFootprint(options, SmallModel()));
    const int64_t bytes = dtype == DType::kF32 ? model::TransposedModel<float>(SmallModel()).num_bytes()
                                               : model::TransposedModel<Bf16>(SmallModel()).num_bytes();
    EXPECT_NEAR(BytesOf(footprint, "weights, transposed for backward"), bytes, 64 * 13) << "but for alignment";
  }
}

TEST(Footprint, CacheHoldsFullSamplesOrWhatIsAsked) {
  ASSERT_OK_AND_ASSIGN(const Footprint by_default, EstimateFootprint(SmallRun(), SmallModel()));
  EXPECT_EQ(by_default.kv_blocks, 6) << "6 samples of 30 positions, a block each";
  const int64_t block_bytes = 64 * 2 * 4 * 3 * 4;  // positions, keys and values, kv size, layers, f32
  EXPECT_EQ(BytesOf(by_default, "key-value cache"), 6 * block_bytes);
  RunOptions blocks = SmallRun();
  blocks.rollout.kv_blocks = 11;
  EXPECT_EQ(EstimateFootprint(blocks, SmallModel())->kv_blocks, 11);
  RunOptions memory = SmallRun();
  memory.rollout.kv_memory_mb = 1;
  EXPECT_EQ(EstimateFootprint(memory, SmallModel())->kv_blocks, (1 << 20) / block_bytes);
  RunOptions tiny = SmallRun();
  tiny.rollout.sampling.max_tokens = 200;
  tiny.rollout.kv_blocks = 3;
  EXPECT_THAT(EstimateFootprint(tiny, SmallModel()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("rollout.kv_blocks gives a cache of 3 blocks: one sample of 210 tokens needs 4")));
}

TEST(Footprint, CountsOperationsOfAStep) {
  ASSERT_OK_AND_ASSIGN(const Footprint footprint, EstimateFootprint(SmallRun(), SmallModel()));
  // A group: 10 prompt tokens once, 3 x 20 completion tokens.
  const double matrices = 2.0 * 3 * 8 * (16 + 8 + 48) * 70;  // two per weight and token
  // Queries at positions 0..9 see 5 keys on average, those at 10..29 see 20; 4 per key and query element (8) and layer.
  const double attention = 4.0 * 8 * 3 * (10 * 5 + 3 * 20 * 20);
  const double head = 2.0 * 10 * 8 * 60;
  EXPECT_DOUBLE_EQ(footprint.sample_flops, 2 * (matrices + attention + head));
  EXPECT_DOUBLE_EQ(footprint.train_flops, 3 * footprint.sample_flops);
}

TEST(Footprint, OptionsThatCostMoreAreCounted) {
  const auto train_flops = [](const RunOptions& options) {
    return EstimateFootprint(options, SmallModel())->train_flops;
  };
  ASSERT_OK_AND_ASSIGN(const Footprint plain, EstimateFootprint(SmallRun(), SmallModel()));
  RunOptions kl = SmallRun();
  kl.algorithm.loss.kl_coef = 0.1;
  EXPECT_DOUBLE_EQ(train_flops(kl), 4 * plain.sample_flops);
  EXPECT_GT(BytesOf(*EstimateFootprint(kl, SmallModel()), "reference weights, packed"), 0);
  RunOptions two = SmallRun();
  two.learner.mini_batches = 2;
  EXPECT_DOUBLE_EQ(train_flops(two), 3.5 * plain.sample_flops) << "the second half takes one more forward pass";
  RunOptions recompute = SmallRun();
  recompute.learner.recompute = model::Recompute::kLayer;
  EXPECT_GT(train_flops(recompute), plain.train_flops);
  EXPECT_LT(BytesOf(*EstimateFootprint(recompute, SmallModel()), "activations of a micro-batch"),
            BytesOf(plain, "activations of a micro-batch"));
}

TEST(Footprint, PromptAndCompletionMustFitTheContext) {
  RunOptions options = SmallRun();
  options.rollout.sampling.max_tokens = 512;
  EXPECT_THAT(
      EstimateFootprint(options, SmallModel()),
      StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("rollout.max_tokens is 512: the model's context")));
  options.rollout.sampling.max_tokens = 510;
  EXPECT_THAT(EstimateFootprint(options, SmallModel()),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("data.max_prompt_tokens is 10")));
  options.data.max_prompt_tokens = 0;
  ASSERT_OK_AND_ASSIGN(const Footprint footprint, EstimateFootprint(options, SmallModel()));
  EXPECT_EQ(footprint.prompt_tokens, 2) << "what the context leaves";
}

}  // namespace
}  // namespace lockstep::job
