// The sampling engine: continuous batching over a paged key/value cache.
//
//   auto engine = *Engine::Make(config, DType::kBf16, options, pool);
//   engine->SetWeights(packed_bytes, version);
//   RETURN_IF_ERROR(engine->Submit(request));
//   while (engine->busy()) engine->Step(&finished);
//
// Each step computes one row of every running sequence and, in the room that is left, chunks of prompts (chunked
// prefill: Agrawal et al., 2023). A group's prompt is computed once; its samples share the blocks. When blocks run out
// the youngest sequence gives its own back and is computed again later, from the tokens it has.
//
// Bit rule: what a request gets is a function of weights, prompt, parameters, seed, ordinal, sample and turn: the same
// alone, in any batch, with any chunking, after any preemption.
//
// Thread contract: one thread owns an engine; it uses the pool inside.
#ifndef LOCKSTEP_ROLLOUT_ENGINE_H_
#define LOCKSTEP_ROLLOUT_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/kernels/matmul_backend.h"
#include "model/model_config.h"
#include "runtime/base/philox.h"
#include "runtime/base/thread_pool.h"
#include "runtime/data/sampling_params.h"
#include "runtime/data/token_tree.h"
#include "runtime/device/tensor.h"

namespace lockstep::rollout {

struct EngineOptions {
  // Blocks of 64 positions in the cache. More blocks let more sequences run together.
  int32_t kv_blocks = 256;
  // Sequences that run together at most. Products cost little more for 64 rows than for 8.
  int32_t max_batch = 64;
  // Rows of one step at most, beyond the running sequences: prompts longer than this are computed in chunks, so that
  // decoding goes on.
  int32_t prefill_tokens = 512;
  // Prompt and completion together.
  int32_t max_context = 2048;
  // Who multiplies; the weights must be packed for it.
  model::MatMulBackend matmul = model::MatMulBackend::kOwn;
  absl::Status Validate() const;
};

struct GenerationRequest {
  int64_t request_id = 0;
  std::vector<int32_t> prompt_ids;
  int32_t num_samples = 1;
  int32_t first_sample = 0;  // sample ids are first_sample, first_sample + 1, ...
  SamplingParams params;
  RandomKey key;  // seed and purpose
  int64_t ordinal = 0;
  int32_t turn = 0;
};

struct GenerationResult {
  int64_t request_id = 0;
  SampledRun run;
};

// Watches the text of one completion for stop texts.
class StopWatcher {
 public:
  virtual ~StopWatcher() = default;
  virtual bool Add(int32_t token_id) = 0;  // true once the text so far holds a stop text
};
using StopWatcherFactory = std::function<std::unique_ptr<StopWatcher>(const std::vector<std::string>& stop)>;

struct EngineCounters {
  int64_t prefill_rows = 0, decode_rows = 0, sampled_tokens = 0, preemptions = 0, steps = 0;
};

class Engine {
 public:
  // `pool` must outlive the engine. Without a factory requests with stop texts are refused.
  static absl::StatusOr<std::unique_ptr<Engine>> Make(const model::ModelConfig& config, DType dtype,
                                                      const EngineOptions& options, ThreadPool& pool,
                                                      StopWatcherFactory stop_watchers = nullptr);
  static int64_t KvBytesPerBlock(const model::ModelConfig& config, DType dtype);
  virtual ~Engine() = default;

  // Weights in packed form (model/packed_model.h), which must stay until the next call. The engine must not be busy.
  virtual void SetWeights(const uint8_t* packed, int64_t version) = 0;

  // InvalidArgument: bad parameters, token ids outside the vocabulary, a prompt that leaves no room; ResourceExhausted:
  // more blocks than the cache has.
  virtual absl::Status Submit(GenerationRequest request) = 0;

  // Appends what finished, in no particular order.
  virtual void Step(std::vector<GenerationResult>* finished) = 0;
  virtual bool busy() const = 0;
  // Drops everything under way.
  virtual void Abort() = 0;
  virtual const EngineCounters& counters() const = 0;
};

}  // namespace lockstep::rollout

#endif  // LOCKSTEP_ROLLOUT_ENGINE_H_
