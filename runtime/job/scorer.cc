#include "runtime/job/scorer.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/head.h"
#include "model/load.h"
#include "model/packed_model.h"
#include "model/product_check.h"
#include "model/training_pass.h"
#include "model/transformer.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_pool.h"

namespace lockstep::job {
namespace {

template <typename T>
class ModelScorer : public Scorer {
 public:
  // The float32 parameters are needed for packing only.
  ModelScorer(const model::LoadedModel& loaded, int num_threads, model::MatMulBackend matmul)
      : config_(loaded.config),
        pool_(num_threads),
        layout_(config_, DTypeOf<T>::value, matmul),
        memory_(static_cast<size_t>(layout_.num_bytes())),
        packed_(Pack(loaded.parameters)),
        transformer_(config_, config_.max_position_embeddings),
        pass_(transformer_, pool_, model::Recompute::kLayer),
        head_(config_, pool_) {}

  absl::StatusOr<std::vector<float>> LogProbs(absl::Span<const int32_t> ids) override {
    const auto count = static_cast<int64_t>(ids.size());
    if (count == 0) return absl::InvalidArgumentError("there are no ids to score");
    if (count > config_.max_position_embeddings) {
      return absl::InvalidArgumentError(
          absl::StrCat(count, " ids are too many: the model's context holds ", config_.max_position_embeddings));
    }
    for (int32_t id : ids) {
      if (id < 0 || id >= config_.vocab_size) {
        return absl::InvalidArgumentError(
            absl::StrCat("id ", id, " is outside the vocabulary of ", config_.vocab_size));
      }
    }
    std::vector<float> logprobs(static_cast<size_t>(count - 1));
    if (logprobs.empty()) return logprobs;
    Forward(ids, absl::MakeSpan(logprobs));
    return logprobs;
  }

 private:
  model::PackedModel<T> Pack(const model::Parameters& parameters) {
    model::PackModel<T>(pool_, config_, parameters, layout_, memory_.data());
    return model::PackedModel<T>(config_, layout_, memory_.data());
  }

  // The last id is only predicted, so it needs no row of its own.
  void Forward(absl::Span<const int32_t> ids, absl::Span<float> logprobs) {
    const auto rows = static_cast<int64_t>(logprobs.size());
    std::vector<int32_t> positions(logprobs.size());
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<int32_t> subtree_end(logprobs.size(), static_cast<int32_t>(rows));
    pass_.Forward(packed_, {ids.first(logprobs.size()), positions, subtree_end}, /*keep_activations=*/false);
    OwnedMatrix<T> hidden;
    hidden.Resize(rows, config_.hidden_size);
    pass_.GatherHidden(packed_, positions, hidden.view());
    std::vector<model::HeadTarget> targets(logprobs.size());
    for (size_t i = 0; i < targets.size(); ++i) targets[i].id = ids[i + 1];
    head_.LogProbs(packed_, hidden.view(), targets, logprobs, {});
  }

  const model::ModelConfig config_;
  ThreadPool pool_;
  const model::PackedLayout layout_;
  Buffer memory_;
  const model::PackedModel<T> packed_;
  const model::Transformer<T> transformer_;
  model::TrainingPass<T> pass_;
  model::Head<T> head_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Scorer>> Scorer::Load(const std::string& model_path, DType dtype, int num_threads,
                                                     model::MatMulChoice matmul) {
  const absl::StatusOr<model::LoadedModel> loaded = model::LoadModel(model_path);
  if (!loaded.ok()) return loaded.status();
  const model::MatMulBackend backend = model::ChooseMatMulBackend(matmul, dtype, loaded->config);
  std::unique_ptr<Scorer> scorer;
  if (dtype == DType::kF32) {
    scorer = std::make_unique<ModelScorer<float>>(*loaded, num_threads, backend);
  } else {
    scorer = std::make_unique<ModelScorer<Bf16>>(*loaded, num_threads, backend);
  }
  return scorer;
}

}  // namespace lockstep::job
