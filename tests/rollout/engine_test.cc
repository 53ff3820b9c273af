// The engine's promise: what a request gets does not depend on company, chunking or preemption, and the learner
// recomputes it to the bit. And the faults that the bit check exists for are visible to it.
#include "rollout/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "learner/learner.h"
#include "model/kernels/logits.h"
#include "model/packed_model.h"
#include "model/product_check.h"
#include "rollout/batch_forward.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace lockstep::rollout {
namespace {

using model::Architecture;
using model::MatMulBackend;
using ::testing::HasSubstr;

template <typename T>
struct Weights {
  model::LoadedModel loaded;
  model::PackedLayout layout;
  Buffer memory;
  Weights(Architecture architecture, uint64_t seed, MatMulBackend matmul = MatMulBackend::kOwn)
      : loaded(testing::TinyModel(architecture, seed)),
        layout(loaded.config, DTypeOf<T>::value, matmul),
        memory(static_cast<size_t>(layout.num_bytes())) {
    ThreadPool pool(1);
    model::PackModel<T>(pool, loaded.config, loaded.parameters, layout, memory.data());
  }
};

std::vector<int32_t> Prompt(int64_t ordinal, int64_t length) {
  std::vector<int32_t> ids(length);
  for (int64_t i = 0; i < length; ++i) {
    ids[i] = static_cast<int32_t>(UniformBelow({3, RandomPurpose::kTest}, {.ordinal = ordinal, .draw = i}, 203));
  }
  return ids;
}

GenerationRequest Request(int64_t ordinal, int64_t prompt_tokens, int32_t num_samples, int32_t max_tokens) {
  GenerationRequest request;
  request.request_id = ordinal;
  request.ordinal = ordinal;
  request.prompt_ids = Prompt(ordinal, prompt_tokens);
  request.num_samples = num_samples;
  request.params.max_tokens = max_tokens;
  request.key = {11, RandomPurpose::kSampling};
  return request;
}

// (request, sample) -> run
using Runs = std::map<std::pair<int64_t, int32_t>, SampledRun>;

template <typename T>
Runs RunAll(const Weights<T>& weights, EngineOptions options, int threads,
            const std::vector<GenerationRequest>& requests, EngineCounters* counters = nullptr) {
  ThreadPool pool(threads);
  options.matmul = weights.layout.backend();
  std::unique_ptr<Engine> engine = *Engine::Make(weights.loaded.config, DTypeOf<T>::value, options, pool);
  engine->SetWeights(weights.memory.data(), 5);
  for (const GenerationRequest& request : requests) EXPECT_OK(engine->Submit(request));
  std::vector<GenerationResult> finished;
  while (engine->busy()) engine->Step(&finished);
  if (counters != nullptr) *counters = engine->counters();
  Runs runs;
  for (GenerationResult& result : finished) runs[{result.request_id, result.run.sample_id}] = std::move(result.run);
  return runs;
}

void ExpectEqualRuns(const Runs& a, const Runs& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [key, run] : a) {
    const SampledRun& other = b.at(key);
    ASSERT_EQ(run.tokens.size(), other.tokens.size());
    for (size_t i = 0; i < run.tokens.size(); ++i) {
      ASSERT_EQ(run.tokens[i].id, other.tokens[i].id)
          << "request " << key.first << " sample " << key.second << " token " << i;
      ASSERT_EQ(run.tokens[i].rollout_logprob, other.tokens[i].rollout_logprob);
    }
    ASSERT_EQ(run.kept.ids, other.kept.ids);
  }
}

template <typename T>
class EngineTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(EngineTest, StorageTypes);

std::vector<GenerationRequest> MixedRequests() {
  std::vector<GenerationRequest> requests = {Request(1, 5, 3, 20), Request(2, 64, 2, 70), Request(3, 130, 4, 9),
                                             Request(4, 1, 1, 40)};
  requests[1].params.temperature = 0.7f;
  requests[2].params.top_k = 20;
  requests[2].params.top_p = 0.9f;
  requests[3].params.temperature = 0;  // greedy
  return requests;
}

TYPED_TEST(EngineTest, CompanyChunksPreemptionAndThreadsDoNotChangeABit) {
  const Weights<TypeParam> weights(Architecture::kQwen3, 1);
  const std::vector<GenerationRequest> requests = MixedRequests();
  const Runs together =
      RunAll(weights, {.kv_blocks = 64, .max_batch = 16, .prefill_tokens = 512, .max_context = 256}, 1, requests);
  EXPECT_EQ(together.size(), 10u);
  ExpectEqualRuns(
      RunAll(weights, {.kv_blocks = 64, .max_batch = 16, .prefill_tokens = 7, .max_context = 256}, 3, requests),
      together);
  ExpectEqualRuns(
      RunAll(weights, {.kv_blocks = 64, .max_batch = 2, .prefill_tokens = 33, .max_context = 256}, 2, requests),
      together);
  EngineCounters counters;
  ExpectEqualRuns(RunAll(weights, {.kv_blocks = 4, .max_batch = 16, .prefill_tokens = 512, .max_context = 256}, 2,
                         requests, &counters),
                  together);
  EXPECT_GT(counters.preemptions, 0);
  Runs alone;
  for (const GenerationRequest& request : requests) {
    for (int32_t sample = 0; sample < request.num_samples; ++sample) {
      GenerationRequest one = request;
      one.first_sample = sample;
      one.num_samples = 1;
      alone.merge(
          RunAll(weights, {.kv_blocks = 8, .max_batch = 1, .prefill_tokens = 512, .max_context = 256}, 1, {one}));
    }
  }
  ExpectEqualRuns(alone, together);
}

TYPED_TEST(EngineTest, APromptGroupIsPrefilledOnce) {
  const Weights<TypeParam> weights(Architecture::kLlama, 1);
  EngineCounters counters;
  RunAll(weights, {.kv_blocks = 64, .max_batch = 16, .prefill_tokens = 512, .max_context = 256}, 1,
         {Request(1, 100, 8, 4)}, &counters);
  EXPECT_EQ(counters.prefill_rows, 100);
  EXPECT_EQ(counters.sampled_tokens, 32);
}

// The learner's log-probs of what the engine sampled.
template <typename T>
std::vector<float> LearnerLogProbs(const Weights<T>& weights, const GenerationRequest& request, const Runs& runs,
                                   std::vector<float>* rollout) {
  std::vector<TokenTree> trees(request.num_samples);
  std::vector<const TokenTree*> pointers;
  for (int32_t s = 0; s < request.num_samples; ++s) {
    const NodeId prompt = trees[s].AppendContext({}, TokenSource::kPrompt, request.prompt_ids);
    trees[s].AppendSampled(trees[s].End(prompt), runs.at({request.request_id, s}));
    pointers.push_back(&trees[s]);
  }
  const FlatForest forest = Flatten(pointers);
  ThreadPool pool(2);
  learner::LearnerConfig config;
  config.dtype = DTypeOf<T>::value;
  config.matmul = weights.layout.backend();
  config.max_positions = 256;
  auto learner = *learner::Learner::Make({weights.loaded.config, weights.loaded.parameters.Copy()}, config, pool);
  std::vector<float> logprobs(forest.loss_rows.size());
  learner->LogProbs(weights.memory.data(), forest, absl::MakeSpan(logprobs), {});
  rollout->clear();
  for (const LossRow& row : forest.loss_rows) rollout->push_back(row.rollout_logprob);
  return logprobs;
}

template <typename T>
void ExpectLearnerEqualsEngine(const Weights<T>& weights) {
  const std::vector<GenerationRequest> requests = MixedRequests();
  const Runs runs =
      RunAll(weights, {.kv_blocks = 64, .max_batch = 16, .prefill_tokens = 40, .max_context = 256}, 2, requests);
  for (const GenerationRequest& request : requests) {
    std::vector<float> rollout;
    const std::vector<float> learner = LearnerLogProbs(weights, request, runs, &rollout);
    ASSERT_EQ(learner.size(), rollout.size());
    ASSERT_FALSE(learner.empty());
    for (size_t i = 0; i < learner.size(); ++i)
      ASSERT_EQ(learner[i], rollout[i]) << "request " << request.ordinal << " row " << i;
  }
}

TYPED_TEST(EngineTest, TheLearnerRecomputesEveryLogProbToTheBit) {
  for (const Architecture architecture : {Architecture::kLlama, Architecture::kQwen2, Architecture::kQwen3}) {
    ExpectLearnerEqualsEngine(Weights<TypeParam>(architecture, 2));
  }
}

TYPED_TEST(EngineTest, TheBitsHoldWithOneDnnToo) {
  const Weights<TypeParam> own(Architecture::kQwen2, 2);
  const absl::Status usable = model::CheckBackend(MatMulBackend::kOneDnn, DTypeOf<TypeParam>::value, own.loaded.config);
  if (!usable.ok()) GTEST_SKIP() << "SKIPPED: " << usable.message();
  const Weights<TypeParam> weights(Architecture::kQwen2, 2, MatMulBackend::kOneDnn);
  ExpectLearnerEqualsEngine(weights);
  ExpectEqualRuns(
      RunAll(weights, {.kv_blocks = 64, .max_batch = 2, .prefill_tokens = 7, .max_context = 256}, 3, MixedRequests()),
      RunAll(weights, {.kv_blocks = 64, .max_batch = 16, .prefill_tokens = 512, .max_context = 256}, 1,
             MixedRequests()));
}

// How many of the learner's log-probs differ from the rollout's.
int64_t CountDifferences(const std::vector<float>& a, const std::vector<float>& b) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

TYPED_TEST(EngineTest, ATemperatureOnOneSideIsSeen) {
  const Weights<TypeParam> weights(Architecture::kLlama, 3);
  GenerationRequest request = Request(1, 20, 2, 30);
  request.params.temperature = 0.9f;
  Runs runs = RunAll(weights, {}, 1, {request});
  for (auto& [key, run] : runs) run.params.temperature = 1.0f;  // the fault: the learner is told another temperature
  std::vector<float> rollout;
  const std::vector<float> learner = LearnerLogProbs(weights, request, runs, &rollout);
  EXPECT_GT(CountDifferences(learner, rollout), 50);
}

TYPED_TEST(EngineTest, StaleWeightsAreSeen) {
  const Weights<TypeParam> weights(Architecture::kLlama, 3);
  Weights<TypeParam> updated(Architecture::kLlama, 3);
  // One small update of one matrix that the engine has not heard of.
  float* down = updated.loaded.parameters.Get("model.layers.1.mlp.down_proj.weight");
  for (int i = 0; i < 48 * 80; ++i) down[i] *= 1.02f;
  ThreadPool pool(1);
  model::PackModel<TypeParam>(pool, updated.loaded.config, updated.loaded.parameters, updated.layout,
                              updated.memory.data());
  const GenerationRequest request = Request(1, 20, 2, 30);
  const Runs runs = RunAll(weights, {}, 1, {request});
  std::vector<float> rollout;
  const std::vector<float> learner = LearnerLogProbs(updated, request, runs, &rollout);
  EXPECT_GT(CountDifferences(learner, rollout), 50);
}

// Scores a chain of tokens through the paged cache by hand, with room for planted faults.
template <typename T>
std::vector<float> PagedLogProbs(const Weights<T>& weights, const std::vector<int32_t>& ids, int32_t position_shift,
                                 std::vector<int32_t> blocks) {
  ThreadPool pool(1);
  const model::Transformer<T> transformer(weights.loaded.config, 512);
  BatchForward<T> forward(transformer, pool);
  KvArrays<T> cache(weights.loaded.config, 4);
  const model::PackedModel<T> packed(weights.loaded.config, weights.layout, weights.memory.data());
  // Every block holds something, as in a long-lived cache.
  for (int64_t layer = 0; layer < weights.loaded.config.num_layers; ++layer) {
    for (Matrix<T> array : {cache.keys(layer), cache.values(layer)}) {
      for (int64_t i = 0; i < array.rows * array.cols; ++i) array.data[i] = T(packed.embedding.data[i % 997]);
    }
  }
  std::vector<int32_t> key_rows;
  for (int32_t block : blocks) {
    for (int32_t i = 0; i < kBlockPositions; ++i) key_rows.push_back(static_cast<int32_t>(block * kBlockPositions) + i);
  }
  std::vector<float> logprobs;
  Batch batch;
  for (size_t t = 0; t + 1 < ids.size(); ++t) {
    batch.Clear();
    // Where the row is written is right; what is planted is where later rows look it up.
    const int32_t home = static_cast<int32_t>(t);
    batch.token_ids = {ids[t]};
    batch.positions = {home + position_shift};
    batch.kv_rows = {home};
    batch.segments = {{.row_begin = 0, .count = 1, .first_position = home, .key_rows = key_rows.data()}};
    batch.logit_rows = {0};
    const Matrix<const float> logits = forward.Run(packed, batch, cache);
    const absl::Span<const float> row(logits.row(0), static_cast<size_t>(logits.cols));
    const model::RowStatistics statistics = model::ComputeStatistics(row, 1.0f, {});
    logprobs.push_back(model::LogProb(statistics, row[ids[t + 1]], 1.0f));
  }
  return logprobs;
}

TYPED_TEST(EngineTest, WrongPositionsAndAWrongBlockTableAreSeen) {
  const Weights<TypeParam> weights(Architecture::kLlama, 4);
  const GenerationRequest request = Request(1, 40, 1, 60);
  const Runs runs = RunAll(weights, {}, 1, {request});
  std::vector<int32_t> ids = request.prompt_ids;
  for (const SampledToken& token : runs.at({1, 0}).tokens) ids.push_back(token.id);
  std::vector<float> rollout;
  const std::vector<float> learner = LearnerLogProbs(weights, request, runs, &rollout);
  const auto sampled = [&](const std::vector<float>& all) { return std::vector<float>(all.begin() + 39, all.end()); };
  EXPECT_EQ(CountDifferences(sampled(PagedLogProbs(weights, ids, 0, {0, 1})), learner), 0);
  // Shifting all positions alike changes nothing that RoPE sees but its roundings: still seen.
  EXPECT_GT(CountDifferences(sampled(PagedLogProbs(weights, ids, 1, {0, 1})), learner), 30);
  // The second block of the table points elsewhere: rows from position 64 on are wrong, earlier ones right.
  const std::vector<float> wrong_block = sampled(PagedLogProbs(weights, ids, 0, {0, 2}));
  EXPECT_EQ(CountDifferences({wrong_block.begin(), wrong_block.begin() + 24}, {learner.begin(), learner.begin() + 24}),
            0);
  EXPECT_GT(CountDifferences(wrong_block, learner), 30);
}

TEST(Engine, StopIdsMinTokensAndLimits) {
  const Weights<float> weights(Architecture::kLlama, 5);
  GenerationRequest request = Request(1, 10, 4, 200);
  for (int32_t id = 0; id < 100; ++id) request.params.stop_ids.push_back(id);
  request.params.min_tokens = 3;
  for (const auto& [key, run] : RunAll(weights, {}, 1, {request})) {
    ASSERT_GE(run.tokens.size(), 4u);
    EXPECT_EQ(run.finish_reason, FinishReason::kStop);
    for (size_t i = 0; i + 1 < run.tokens.size(); ++i) EXPECT_GE(run.tokens[i].id, 100);
    EXPECT_LT(run.tokens.back().id, 100);
    EXPECT_EQ(run.kept.kind(0), KeptIds::Kind::kCut);  // the ban is on record
  }
  GenerationRequest longer = Request(2, 10, 1, 500);
  const Runs runs =
      RunAll(weights, {.kv_blocks = 8, .max_batch = 4, .prefill_tokens = 64, .max_context = 64}, 1, {longer});
  EXPECT_EQ(runs.at({2, 0}).tokens.size(), 54u);
  EXPECT_EQ(runs.at({2, 0}).finish_reason, FinishReason::kLength);
}

TEST(Engine, RefusesWhatItCannotDo) {
  const Weights<float> weights(Architecture::kLlama, 6);
  ThreadPool pool(1);
  const EngineOptions options{.kv_blocks = 2, .max_batch = 4, .prefill_tokens = 64, .max_context = 256};
  std::unique_ptr<Engine> engine = *Engine::Make(weights.loaded.config, DType::kF32, options, pool);
  GenerationRequest request = Request(1, 10, 1, 20);
  request.prompt_ids.clear();
  EXPECT_THAT(engine->Submit(request), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty")));
  request = Request(1, 10, 1, 20);
  request.prompt_ids[3] = 203;
  EXPECT_THAT(engine->Submit(request),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token id 203")));
  request = Request(1, 256, 1, 20);
  EXPECT_THAT(engine->Submit(request), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no room")));
  request = Request(1, 100, 1, 100);
  EXPECT_THAT(engine->Submit(request), testing::StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("kv_blocks")));
  request = Request(1, 10, 1, 20);
  request.params.temperature = -1;
  EXPECT_THAT(engine->Submit(request), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("temperature")));
  request = Request(1, 10, 1, 20);
  request.params.stop = {"x"};
  EXPECT_THAT(engine->Submit(request), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer")));
}

}  // namespace
}  // namespace lockstep::rollout
