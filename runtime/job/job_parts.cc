#include "runtime/job/job_parts.h"

#include <algorithm>

#include "rollout/kv_cache.h"

namespace lockstep::job {

rollout::EngineOptions EngineOptionsOf(const RunOptions& options, const model::ModelConfig& config) {
  rollout::EngineOptions engine;
  engine.max_batch = options.rollout.max_batch;
  engine.prefill_tokens = options.rollout.prefill_chunk_tokens;
  int64_t context = config.max_position_embeddings;
  if (options.data.max_prompt_tokens > 0) {
    context = std::min<int64_t>(context, options.data.max_prompt_tokens + options.rollout.sampling.max_tokens);
  }
  engine.max_context = static_cast<int32_t>(std::min<int64_t>(context, 4096));
  const int64_t per_sequence = rollout::BlocksFor(engine.max_context);
  int64_t blocks = options.rollout.kv_blocks;
  if (blocks == 0 && options.rollout.kv_memory_mb > 0) {
    blocks = (options.rollout.kv_memory_mb << 20) / rollout::Engine::KvBytesPerBlock(config, ComputeDType(options));
  }
  if (blocks == 0) blocks = std::min<int64_t>(per_sequence * engine.max_batch, 4096);
  engine.kv_blocks = static_cast<int32_t>(std::max(blocks, per_sequence));
  return engine;
}

int64_t MaxPromptTokens(const RunOptions& options, const model::ModelConfig& config) {
  if (options.data.max_prompt_tokens > 0) return options.data.max_prompt_tokens;
  return EngineOptionsOf(options, config).max_context - options.rollout.sampling.max_tokens;
}

SamplingParams SamplingOf(const JobParts& parts) {
  SamplingParams sampling = parts.options.rollout.sampling;
  if (sampling.stop_ids.empty()) sampling.stop_ids = DefaultStopIds(*parts.text.tokenizer, parts.model.config);
  return sampling;
}

rollout::RewardOptions RewardOptionsOf(const RewardOptions& options) {
  rollout::RewardOptions reward;
  static constexpr const char* kKinds[] = {"arithmetic", "json_object", "exact_match", "process"};
  reward.kind = kKinds[static_cast<int>(options.kind)];
  reward.answer_field = options.answer_field;
  reward.regex = options.regex;
  reward.format_bonus = options.format_bonus;
  reward.command = options.command;
  reward.num_processes = options.num_processes;
  reward.deadline_ms = options.deadline_ms;
  reward.max_attempts = options.max_attempts;
  reward.weights = options.weights;
  return reward;
}

}  // namespace lockstep::job
