#include "learner/learner.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <utility>

#include "learner/exact_sum.h"
#include "learner/gradient_clip.h"
#include "model/head.h"
#include "model/packed_model.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

namespace lockstep::learner {
namespace {

using model::HeadTarget;
using model::ModelConfig;
using model::PackedModel;
using model::ParameterLayout;

// A tied embedding gets several contributions of one micro-batch: the head's row chunks (1,024 rows each) and the
// input's.
constexpr int64_t kPartsPerMicroBatch = 16;
constexpr int64_t kMaxLossRows = (kPartsPerMicroBatch - 1) * 1024;

// Adds gradient tiles to the integer sums and remembers what they looked like.
class ExactGradientSums : public model::GradientSink {
 public:
  explicit ExactGradientSums(int64_t size) : sums_(Buffer::Zeroed(static_cast<size_t>(size) * sizeof(int64_t))) {}

  void Reset(int quantum_log2) {
    quantum_log2_ = quantum_log2;
    check_ = RangeCheck();
  }
  void Add(int64_t offset, absl::Span<const float> values) override {
    const RangeCheck check =
        AddExact(values.data(), static_cast<int64_t>(values.size()), quantum_log2_, data() + offset);
    const std::lock_guard<std::mutex> lock(mutex_);  // once per tile of some hundred thousand values
    check_.Join(check);
  }
  int64_t* data() { return sums_.as<int64_t>(); }
  const int64_t* data() const { return sums_.as<int64_t>(); }
  const RangeCheck& check() const { return check_; }

 private:
  Buffer sums_;
  int quantum_log2_ = kFirstQuantumLog2;
  std::mutex mutex_;  // guards check_
  RangeCheck check_;
};

std::vector<HeadTarget> TargetsOf(const FlatForest& forest) {
  std::vector<HeadTarget> targets;
  targets.reserve(forest.loss_rows.size());
  for (const LossRow& row : forest.loss_rows) {
    const absl::Span<const int32_t> list(forest.kept_ids.data() + row.kept_begin,
                                         static_cast<size_t>(row.kept_end - row.kept_begin));
    targets.push_back({row.target_id, row.temperature, {row.kept_kind, list}});
  }
  return targets;
}

std::vector<int32_t> RowsOf(const FlatForest& forest) {
  std::vector<int32_t> rows;
  rows.reserve(forest.loss_rows.size());
  for (const LossRow& row : forest.loss_rows) rows.push_back(row.row);
  return rows;
}

template <typename T>
class LearnerOf final : public Learner {
 public:
  LearnerOf(model::LoadedModel loaded, const LearnerConfig& config, ThreadPool& pool)
      : config_(config),
        model_config_(loaded.config),
        pool_(pool),
        parameters_(std::move(loaded.parameters)),
        layout_(model_config_, DTypeOf<T>::value, config.matmul),
        transposed_(model_config_, config.matmul),
        transformer_(model_config_, config.max_positions),
        pass_(transformer_, pool, config.recompute),
        head_(model_config_, pool),
        sums_(parameters_.size()),
        first_moment_(Buffer::Zeroed(static_cast<size_t>(parameters_.size()) * sizeof(float))),
        second_moment_(Buffer::Zeroed(static_cast<size_t>(parameters_.size()) * sizeof(float))) {
    for (const ParameterLayout::Entry& entry : parameters_.layout().entries())
      decayed_.push_back(entry.shape.size() > 1);
  }

  const ModelConfig& model_config() const override { return model_config_; }
  const model::Parameters& parameters() const override { return parameters_; }
  uint64_t WeightHash() const override { return parameters_.Hash(); }
  int64_t packed_bytes() const override { return layout_.num_bytes(); }
  void Pack(uint8_t* packed) override { model::PackModel<T>(pool_, model_config_, parameters_, layout_, packed); }

  void UseWeights(const uint8_t* packed) override {
    packed_ = std::make_unique<PackedModel<T>>(model_config_, layout_, packed);
    transposed_.Pack(pool_, model_config_, parameters_);
  }

  void LogProbs(const uint8_t* packed, const FlatForest& forest, absl::Span<float> logprobs,
                absl::Span<float> entropies) override {
    const PackedModel<T> weights(model_config_, layout_, packed);
    const OwnedMatrix<T> hidden = HiddenRows(weights, forest, /*keep_activations=*/false);
    if (hidden.rows() > 0) head_.LogProbs(weights, hidden.view(), TargetsOf(forest), logprobs, entropies);
  }

  void BeginStep(int64_t num_micro_batches) override {
    CHECK_GE(num_micro_batches, 1);
    num_micro_batches_ = num_micro_batches;
    sums_.Reset(quantum_log2_);
    int64_t* sums = sums_.data();
    pool_.ParallelFor(NumBlocks(),
                      [&](int64_t block, int) { std::fill(sums + Begin(block), sums + End(block), int64_t{0}); });
  }

  void AddGradient(const FlatForest& forest, LossFunction loss) override {
    CHECK(packed_ != nullptr);
    const int64_t num_rows = static_cast<int64_t>(forest.loss_rows.size());
    std::vector<float> logprobs(num_rows), entropies(num_rows), d_logprobs(num_rows, 0.0f);
    if (num_rows == 0) return;
    CHECK_LE(num_rows, kMaxLossRows);
    const OwnedMatrix<T> hidden = HiddenRows(*packed_, forest, /*keep_activations=*/true);
    const std::vector<HeadTarget> targets = TargetsOf(forest);
    head_.LogProbs(*packed_, hidden.view(), targets, absl::MakeSpan(logprobs), absl::MakeSpan(entropies));
    loss(logprobs, entropies, absl::MakeSpan(d_logprobs));
    OwnedMatrix<float> d_hidden(num_rows, model_config_.hidden_size);
    head_.Backward(*packed_, transposed_, hidden.view(), targets, d_logprobs, {}, d_hidden.view(), parameters_.layout(),
                   sums_);
    pass_.Backward(*packed_, transposed_, RowsOf(forest), d_hidden.view(), parameters_.layout(), sums_);
  }

  StepResult FinishStep(double lr) override {
    StepResult result;
    if (!sums_.check().finite) {
      result.outcome = StepOutcome::kSkipped;
      result.grad_norm = std::nan("");
      return result;
    }
    if (sums_.check().max_abs > LargestContribution(quantum_log2_, num_micro_batches_ * kPartsPerMicroBatch)) {
      quantum_log2_ += kQuantumStepLog2;
      result.outcome = StepOutcome::kOverflow;
      return result;
    }
    result.grad_norm = GradientNorm();
    if (!std::isfinite(result.grad_norm)) {
      result.outcome = StepOutcome::kSkipped;
      return result;
    }
    result.clip_scale = ClipCoefficient(result.grad_norm, config_.max_grad_norm);
    Update(lr, result.clip_scale);
    return result;
  }

  int quantum_log2() const override { return quantum_log2_; }

 private:
  int64_t NumBlocks() const { return (parameters_.size() + kNormBlock - 1) / kNormBlock; }
  int64_t Begin(int64_t block) const { return block * kNormBlock; }
  int64_t End(int64_t block) const { return std::min(parameters_.size(), (block + 1) * kNormBlock); }

  OwnedMatrix<T> HiddenRows(const PackedModel<T>& weights, const FlatForest& forest, bool keep_activations) {
    OwnedMatrix<T> hidden(static_cast<int64_t>(forest.loss_rows.size()), model_config_.hidden_size);
    if (hidden.rows() == 0) return hidden;
    pass_.Forward(weights, {forest.token_ids, forest.position_ids, forest.subtree_end}, keep_activations);
    pass_.GatherHidden(weights, RowsOf(forest), hidden.view());
    return hidden;
  }

  double GradientNorm() {
    std::vector<double> squares(NumBlocks());
    pool_.ParallelFor(NumBlocks(), [&](int64_t block, int) {
      float gradient[kNormBlock];
      ExactToFloat(sums_.data() + Begin(block), End(block) - Begin(block), quantum_log2_, gradient);
      squares[block] = BlockSumOfSquares(gradient, End(block) - Begin(block));
    });
    double sum = 0;
    for (double square : squares) sum += square;
    return std::sqrt(sum);
  }

  void Update(double lr, double clip_scale) {
    ++optimizer_steps_;
    const std::vector<ParameterLayout::Entry>& entries = parameters_.layout().entries();
    pool_.ParallelFor(NumBlocks(), [&](int64_t block, int) {
      float gradient[kNormBlock];
      ExactToFloat(sums_.data() + Begin(block), End(block) - Begin(block), quantum_log2_, gradient);
      // A block may touch several parameters, which differ in whether they decay.
      auto entry = std::upper_bound(entries.begin(), entries.end(), Begin(block),
                                    [](int64_t at, const ParameterLayout::Entry& e) { return at < e.offset; }) -
                   1;
      for (int64_t at = Begin(block); at < End(block); ++entry) {
        const int64_t end = std::min(End(block), entry->offset + entry->size);
        AdamWUpdate(config_.adamw, lr, optimizer_steps_, clip_scale, decayed_[entry - entries.begin()], end - at,
                    gradient + (at - Begin(block)), parameters_.data() + at, first_moment_.as<float>() + at,
                    second_moment_.as<float>() + at);
        at = end;
      }
    });
  }

  const LearnerConfig config_;
  const ModelConfig model_config_;
  ThreadPool& pool_;
  model::Parameters parameters_;
  const model::PackedLayout layout_;
  std::unique_ptr<PackedModel<T>> packed_;
  model::TransposedModel<T> transposed_;
  const model::Transformer<T> transformer_;
  model::TrainingPass<T> pass_;
  model::Head<T> head_;
  ExactGradientSums sums_;
  Buffer first_moment_, second_moment_;  // [parameters] f32
  std::vector<bool> decayed_;            // per parameter: matrices, not gains and biases
  int quantum_log2_ = kFirstQuantumLog2;
  int64_t num_micro_batches_ = 1;
  int64_t optimizer_steps_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Learner>> Learner::Make(model::LoadedModel model, const LearnerConfig& config,
                                                       ThreadPool& pool) {
  RETURN_IF_ERROR(config.adamw.Validate());
  if (config.dtype == DType::kF32) return std::make_unique<LearnerOf<float>>(std::move(model), config, pool);
  if (config.dtype == DType::kBf16) return std::make_unique<LearnerOf<Bf16>>(std::move(model), config, pool);
  return absl::InvalidArgumentError("the learner computes in f32 or bf16");
}

}  // namespace lockstep::learner
