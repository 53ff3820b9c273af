#include "rollout/batch_forward.h"

#include <algorithm>
#include <memory>

#include "model/kernels/matmul.h"

namespace lockstep::rollout {

using model::KvDestination;
using model::MatMul;
using model::PackedLayer;
using model::QueryTile;
using model::RowShare;

void Batch::Clear() {
  token_ids.clear();
  positions.clear();
  kv_rows.clear();
  segments.clear();
  logit_rows.clear();
}

template <typename T>
BatchForward<T>::BatchForward(const model::Transformer<T>& transformer, ThreadPool& pool)
    : transformer_(transformer), pool_(pool) {}

template <typename T>
void BatchForward<T>::Layer(Team& team, const PackedLayer<T>& layer, const Batch& batch, Matrix<T> keys,
                            Matrix<T> values, std::atomic<int64_t>& next_task) {
  const Matrix<float> x = x_.view();
  const KvDestination<T> kv{keys, values, batch.kv_rows.data()};
  transformer_.AttentionInput(team, layer, batch.positions.data(), x, scratch_, q_.view(), kv, nullptr, Matrix<T>());
  team.Sync();
  const model::AttentionShape& shape = transformer_.attention_shape();
  const int64_t num_tasks = static_cast<int64_t>(tiles_.size()) * shape.num_kv_heads;
  for (int64_t task = next_task.fetch_add(1, std::memory_order_relaxed); task < num_tasks;
       task = next_task.fetch_add(1, std::memory_order_relaxed)) {
    model::AttentionForward<T>(shape, task % shape.num_kv_heads, tiles_[task / shape.num_kv_heads], q_.view(), keys,
                               values, attention_.view(), Matrix<float>());
  }
  team.Sync();
  transformer_.AttentionOutput(team, layer, attention_.view(), x, scratch_, x);
  transformer_.Mlp(team, layer, x, scratch_, gate_up_.view(), x, nullptr);
}

template <typename T>
Matrix<const float> BatchForward<T>::Run(const model::PackedModel<T>& model, const Batch& batch, KvArrays<T>& cache) {
  const model::Dimensions& size = transformer_.size();
  const int64_t rows = static_cast<int64_t>(batch.token_ids.size());
  const int64_t num_logits = static_cast<int64_t>(batch.logit_rows.size());
  tiles_.clear();
  const int64_t max_queries = model::MaxTileQueries(transformer_.attention_shape());
  for (const BatchSegment& segment : batch.segments) {
    for (int64_t i = 0; i < segment.count; i += max_queries) {
      tiles_.push_back(QueryTile{.q_begin = segment.row_begin + i,
                                 .count = std::min(max_queries, segment.count - i),
                                 .first_depth = segment.first_position + i,
                                 .key_rows = segment.key_rows});
    }
  }
  x_.Resize(rows, size.hidden);
  q_.Resize(rows, size.query);
  attention_.Resize(rows, size.query);
  gate_up_.Resize(rows, 2 * size.intermediate);
  normed_.Resize(num_logits, size.hidden);
  logits_.Resize(num_logits, size.vocab);
  scratch_.Resize(size, rows);

  const int64_t num_layers = static_cast<int64_t>(model.layers.size());
  const auto next_task = std::make_unique<std::atomic<int64_t>[]>(num_layers);
  pool_.Run([&](Team& team) {
    transformer_.Embed(team, model, batch.token_ids.data(), x_.view());
    for (int64_t i = 0; i < num_layers; ++i) {
      Layer(team, model.layers[i], batch, cache.keys(i), cache.values(i), next_task[i]);
    }
    team.Sync();
    const RowShare mine(team, num_logits);
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      const int32_t row = batch.logit_rows[i];
      transformer_.FinalNorm(model, x_.view().Rows(row, row + 1), normed_.view().Rows(i, i + 1), nullptr);
    }
    team.Sync();
    if (num_logits > 0) MatMul<T, float>(team, normed_.view(), model.head, logits_.view());
  });
  return logits_.view();
}

template class BatchForward<float>;
template class BatchForward<Bf16>;

}  // namespace lockstep::rollout
