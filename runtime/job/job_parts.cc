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
    blocks = (options.rollout.kv_memory_mb << 20) / rollout::Engine::KvBytesPerBlock(config, options.model.dtype);
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

}  // namespace lockstep::job
