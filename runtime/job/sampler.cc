#include "runtime/job/sampler.h"

#include <algorithm>

#include "model/load.h"
#include "model/packed_model.h"
#include "model/product_check.h"
#include "rollout/kv_cache.h"
#include "runtime/base/status.h"

namespace lockstep::job {
namespace {

constexpr int64_t kDefaultContext = 4096;
constexpr int64_t kDefaultBlocks = 512;  // pages are touched only when used

}  // namespace

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Load(const std::string& model_path, const SamplerOptions& options,
                                                       rollout::StopWatcherFactory stop_watchers) {
  const absl::StatusOr<model::LoadedModel> loaded = model::LoadModel(model_path);
  if (!loaded.ok()) return loaded.status();
  const model::ModelConfig& config = loaded->config;
  const int threads = options.threads > 0 ? options.threads : NumUsableCpus();
  std::unique_ptr<Sampler> sampler(new Sampler(config, threads));

  const model::MatMulBackend matmul = model::ChooseMatMulBackend(options.matmul, options.dtype, config);
  const model::PackedLayout layout(config, options.dtype, matmul);
  sampler->packed_ = Buffer(static_cast<size_t>(layout.num_bytes()));
  uint8_t* memory = sampler->packed_.data();
  if (options.dtype == DType::kF32) {
    model::PackModel<float>(sampler->pool_, config, loaded->parameters, layout, memory);
  } else {
    model::PackModel<Bf16>(sampler->pool_, config, loaded->parameters, layout, memory);
  }

  const int64_t context = std::min(config.max_position_embeddings,
                                   options.max_context_tokens > 0 ? options.max_context_tokens : kDefaultContext);
  sampler->max_context_tokens_ = static_cast<int32_t>(context);
  rollout::EngineOptions engine_options;
  engine_options.max_context = sampler->max_context_tokens_;
  engine_options.max_batch = options.max_batch;
  engine_options.matmul = matmul;
  engine_options.kv_blocks = static_cast<int32_t>(std::max(kDefaultBlocks, 2 * rollout::BlocksFor(context)));
  ASSIGN_OR_RETURN(sampler->engine_, rollout::Engine::Make(config, options.dtype, engine_options, sampler->pool_,
                                                           std::move(stop_watchers)));
  sampler->engine_->SetWeights(memory, /*version=*/0);
  return sampler;
}

}  // namespace lockstep::job
