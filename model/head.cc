#include "model/head.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace lockstep::model {
namespace {

constexpr int64_t kRowTile = 64;         // logits of so many rows at a time and thread
constexpr int64_t kMaxChunkRows = 1024;  // rows whose d_logits are held at a time (fixed: chunks cut the gradient sums)
constexpr int64_t kWeightTaskRows = 192;

absl::Span<const float> RowOf(Matrix<const float> m, int64_t row) {
  return absl::MakeConstSpan(m.row(row), static_cast<size_t>(m.cols));
}

}  // namespace

template <typename T>
Head<T>::Head(const ModelConfig& config, ThreadPool& pool)
    : config_(config), pool_(pool), logits_(pool.num_threads()), weight_(pool.num_threads()) {}

template <typename T>
Matrix<float> Head<T>::Logits(const PackedModel<T>& model, Matrix<const T> hidden, int thread) {
  Team alone = TeamOfOne();
  logits_[thread].Resize(hidden.rows, config_.vocab_size);
  const Matrix<float> logits = logits_[thread].view();
  MatMul<T, float>(alone, hidden, model.head, logits);
  return logits;
}

template <typename T>
void Head<T>::LogProbs(const PackedModel<T>& model, Matrix<const T> hidden, absl::Span<const HeadTarget> targets,
                       absl::Span<float> logprobs, absl::Span<float> entropies) {
  CHECK_EQ(static_cast<size_t>(hidden.rows), targets.size());
  CHECK_EQ(logprobs.size(), targets.size());
  const int64_t num_tiles = (hidden.rows + kRowTile - 1) / kRowTile;
  pool_.ParallelFor(num_tiles, [&](int64_t tile, int thread) {
    const int64_t begin = tile * kRowTile, end = std::min(hidden.rows, begin + kRowTile);
    const Matrix<const float> logits = Logits(model, hidden.Rows(begin, end), thread);
    for (int64_t i = begin; i < end; ++i) {
      const HeadTarget& target = targets[i];
      const float inverse = InverseTemperature(target.temperature);
      const absl::Span<const float> row = RowOf(logits, i - begin);
      const RowStatistics statistics = ComputeStatistics(row, inverse, target.filter, !entropies.empty());
      logprobs[i] = LogProb(statistics, row[target.id], inverse);
      if (!entropies.empty()) entropies[i] = statistics.entropy;
    }
  });
}

template <typename T>
void Head<T>::Backward(const PackedModel<T>& model, const TransposedModel<T>& transposed, Matrix<const T> hidden,
                       absl::Span<const HeadTarget> targets, absl::Span<const float> d_logprobs,
                       absl::Span<const float> d_entropies, Matrix<float> d_hidden, const ParameterLayout& layout,
                       GradientSink& sink) {
  const ParameterLayout::Entry& entry = layout.Get(HeadName(config_));
  const int64_t vocab = config_.vocab_size, width = config_.hidden_size;
  for (int64_t chunk = 0; chunk < hidden.rows; chunk += kMaxChunkRows) {
    const int64_t chunk_end = std::min(hidden.rows, chunk + kMaxChunkRows);
    d_logits_.Resize(chunk_end - chunk, vocab);
    const Matrix<T> d_logits = d_logits_.view();
    pool_.ParallelFor((chunk_end - chunk + kRowTile - 1) / kRowTile, [&](int64_t tile, int thread) {
      const int64_t begin = chunk + tile * kRowTile, end = std::min(chunk_end, begin + kRowTile);
      const Matrix<const float> logits = Logits(model, hidden.Rows(begin, end), thread);
      for (int64_t i = begin; i < end; ++i) {
        const absl::Span<const float> row = RowOf(logits, i - begin);
        LogitTarget target;
        target.id = targets[i].id;
        target.inverse_temperature = InverseTemperature(targets[i].temperature);
        target.filter = targets[i].filter;
        target.d_logprob = d_logprobs[i];
        target.d_entropy = d_entropies.empty() ? 0.0f : d_entropies[i];
        target.statistics = ComputeStatistics(row, target.inverse_temperature, target.filter, target.d_entropy != 0);
        LogitsBackward<T>(row, absl::MakeConstSpan(&target, 1), d_logits.row(i - chunk));
      }
      Team alone = TeamOfOne();
      MatMul<T, float>(alone, d_logits.Rows(begin - chunk, end - chunk), transposed.head(), d_hidden.Rows(begin, end));
    });
    pool_.ParallelFor((vocab + kWeightTaskRows - 1) / kWeightTaskRows, [&](int64_t task, int thread) {
      const int64_t begin = task * kWeightTaskRows, end = std::min(vocab, begin + kWeightTaskRows);
      weight_[thread].Resize(end - begin, width);
      WeightGradient<T>(d_logits, begin, hidden.Rows(chunk, chunk_end), weight_[thread].view(), transposed.backend());
      sink.Add(entry.offset + begin * width, absl::MakeConstSpan(weight_[thread].data(), (end - begin) * width));
    });
  }
}

template class Head<float>;
template class Head<Bf16>;

}  // namespace lockstep::model
