#include "runtime/job/sample_limits.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "rollout/kv_cache.h"
#include "runtime/base/status.h"

namespace lockstep::job {
namespace {

constexpr int64_t kDefaultPromptTokens = 4096;
constexpr int64_t kDefaultBlocks = 4096;

}  // namespace

absl::StatusOr<SampleLimits> LimitsOf(const RunOptions& options, const model::ModelConfig& config) {
  SampleLimits limits;
  limits.completion_tokens = options.rollout.sampling.max_tokens;
  const int64_t room = config.max_position_embeddings - limits.completion_tokens;
  if (room < 1) {
    return absl::InvalidArgumentError(absl::StrCat("rollout.max_tokens is ", limits.completion_tokens,
                                                   ": the model's context holds ", config.max_position_embeddings,
                                                   " tokens, prompt included"));
  }
  if (options.data.max_prompt_tokens > room) {
    return absl::InvalidArgumentError(absl::StrCat("data.max_prompt_tokens is ", options.data.max_prompt_tokens,
                                                   " and rollout.max_tokens is ", limits.completion_tokens,
                                                   ": the model's context holds ", config.max_position_embeddings));
  }
  limits.prompt_tokens =
      options.data.max_prompt_tokens > 0 ? options.data.max_prompt_tokens : std::min(kDefaultPromptTokens, room);
  return limits;
}

absl::StatusOr<rollout::EngineOptions> EngineOptionsOf(const RunOptions& options, const model::ModelConfig& config) {
  ASSIGN_OR_RETURN(const SampleLimits limits, LimitsOf(options, config));
  const int64_t sample_blocks = rollout::BlocksFor(limits.context_tokens());
  int64_t blocks = std::min(options.rollout.max_batch * sample_blocks, std::max(kDefaultBlocks, sample_blocks));
  const char* path = "";
  if (options.rollout.kv_blocks > 0) {
    path = "rollout.kv_blocks";
    blocks = options.rollout.kv_blocks;
  } else if (options.rollout.kv_memory_mb > 0) {
    path = "rollout.kv_memory_mb";
    constexpr int64_t kMebibyte = 1 << 20;
    const int64_t block_bytes = rollout::Engine::KvBytesPerBlock(config, options.model.dtype);
    blocks = options.rollout.kv_memory_mb < std::numeric_limits<int64_t>::max() / kMebibyte
                 ? options.rollout.kv_memory_mb * kMebibyte / block_bytes
                 : std::numeric_limits<int64_t>::max();
  }
  if (blocks < sample_blocks) {
    return absl::InvalidArgumentError(absl::StrCat(path, " gives a cache of ", blocks, " blocks: one sample of ",
                                                   limits.context_tokens(), " tokens needs ", sample_blocks));
  }
  if (blocks > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " gives a cache of ", blocks, " blocks: it holds at most ",
                                                   std::numeric_limits<int32_t>::max()));
  }
  rollout::EngineOptions engine;
  engine.max_batch = options.rollout.max_batch;
  engine.prefill_tokens = options.rollout.prefill_chunk_tokens;
  engine.max_context = static_cast<int32_t>(limits.context_tokens());
  engine.kv_blocks = static_cast<int32_t>(blocks);
  return engine;
}

}  // namespace lockstep::job
