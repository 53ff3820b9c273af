#include "runtime/job/footprint.h"

#include <algorithm>

#include "model/kernels/matmul.h"
#include "model/packed_model.h"
#include "model/parameters.h"
#include "model/training_pass.h"
#include "rollout/engine.h"
#include "runtime/base/status.h"

namespace lockstep::job {
namespace {

constexpr int64_t kAssumedPromptTokens = 256;
constexpr int64_t kPublishedSlots = 2;  // one is read while the other is written

int64_t ElementBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// Multiply-adds of one token through all matrices of the layers; the head's are apart, since only some rows need it.
double LayerWeights(const model::ModelConfig& config) {
  const model::Dimensions size(config);
  const double layer = static_cast<double>(size.hidden) * (size.qkv + size.query + 3 * size.intermediate);
  return layer * static_cast<double>(config.num_layers);
}

// Operations of attention for tokens at path positions [first, first + count): 4 per key and query element.
double AttentionFlops(const model::ModelConfig& config, double first, double count) {
  const double keys = count * (first + count / 2);
  return 4.0 * static_cast<double>(config.query_size() * config.num_layers) * keys;
}

int64_t TransposedBytes(const model::ModelConfig& config, DType dtype) {
  const model::Dimensions size(config);
  using model::PackedSize;
  const int64_t layer = PackedSize(size.hidden, size.qkv) + PackedSize(size.query, size.hidden) +
                        PackedSize(size.hidden, 2 * size.intermediate) + PackedSize(size.intermediate, size.hidden);
  return ElementBytes(dtype) * (layer * config.num_layers + PackedSize(size.hidden, size.vocab));
}

int64_t ActivationBytes(const RunOptions& options, const model::ModelConfig& config, int64_t rows) {
  const model::Recompute recompute = options.learner.recompute;
  return options.model.dtype == DType::kF32 ? model::TrainingPass<float>::ActivationBytes(config, rows, recompute)
                                            : model::TrainingPass<Bf16>::ActivationBytes(config, rows, recompute);
}

void CountFlops(const RunOptions& options, const model::ModelConfig& config, Footprint& result) {
  const double prompts = options.rollout.prompts_per_step;
  const auto prompt = static_cast<double>(result.prompt_tokens);
  const double completions =
      static_cast<double>(options.rollout.n) * static_cast<double>(result.limits.completion_tokens);
  const double head = static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  // One forward pass over a group: the prompt once, every completion token once, the head where tokens are predicted.
  const double attention =
      AttentionFlops(config, 0, prompt) +
      options.rollout.n * AttentionFlops(config, prompt, static_cast<double>(result.limits.completion_tokens));
  const double layers = 2 * LayerWeights(config) * (prompt + completions) + attention;
  const double group = layers + 2 * head * completions;
  result.sample_flops = prompts * group;
  double train = 3 * group;  // forward, and twice as much backward
  if (options.learner.recompute == model::Recompute::kLayer) train += layers;
  if (options.algorithm.loss.kl_coef > 0) train += group;
  // Mini-batches after the first take one more forward pass, since old_logprobs belong to the weights before it.
  const double mini_batches = options.learner.mini_batches;
  train += group * (mini_batches - 1) / mini_batches;
  result.train_flops = prompts * train;
}

}  // namespace

int64_t Footprint::BytesOf(Holder holder) const {
  int64_t total = 0;
  for (const Memory& piece : memory) total += piece.holder == holder ? piece.bytes : 0;
  return total;
}

absl::StatusOr<Footprint> EstimateFootprint(const RunOptions& options, const model::ModelConfig& config) {
  Footprint result;
  ASSIGN_OR_RETURN(result.limits, LimitsOf(options, config));
  ASSIGN_OR_RETURN(const rollout::EngineOptions engine, EngineOptionsOf(options, config));
  result.kv_blocks = engine.kv_blocks;
  result.prompt_tokens = options.data.max_prompt_tokens > 0
                             ? result.limits.prompt_tokens
                             : std::min(kAssumedPromptTokens, result.limits.prompt_tokens);

  const model::ParameterLayout parameters(config);
  const int64_t packed = model::PackedLayout(config, options.model.dtype).num_bytes();
  result.num_parameters = parameters.total();
  using Holder = Footprint::Holder;
  result.memory = {
      {"weights, packed, two buffers", Holder::kNode, kPublishedSlots * packed},
      {"master weights, f32", Holder::kLearner, 4 * result.num_parameters},
      {"optimizer moments, 2 x f32", Holder::kLearner, 8 * result.num_parameters},
      {"gradient sums, int64", Holder::kLearner, 8 * result.num_parameters},
      {"weights, transposed for backward", Holder::kLearner, TransposedBytes(config, options.model.dtype)},
  };
  if (options.algorithm.loss.kl_coef > 0) {
    result.memory.push_back({"reference weights, packed", Holder::kLearner, packed});
  }
  // A sample longer than the budget is taken alone.
  const int64_t rows = std::max(options.learner.micro_batch_tokens, result.limits.context_tokens());
  const int64_t batch_tokens = options.rollout.prompts_per_step *
                               (result.limits.prompt_tokens + options.rollout.n * result.limits.completion_tokens);
  result.memory.push_back({"activations of a micro-batch", Holder::kLearner,
                           ActivationBytes(options, config, std::min(rows, batch_tokens))});
  result.memory.push_back({"key-value cache", Holder::kRollout,
                           result.kv_blocks * rollout::Engine::KvBytesPerBlock(config, options.model.dtype)});
  CountFlops(options, config, result);
  return result;
}

}  // namespace lockstep::job
