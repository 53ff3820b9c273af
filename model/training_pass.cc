#include "model/training_pass.h"

#include <algorithm>
#include <numeric>

#include "model/kernels/elementwise.h"
#include "runtime/base/check.h"

namespace lockstep::model {
namespace {

// Weight rows of one gradient task: wide enough that converting the inputs costs little beside the product, small
// enough that the tile of float32 results stays in the cache until it is added to the sum.
constexpr int64_t kWeightTaskRows = 192;

template <typename T>
Matrix<T> NoMatrix() {
  return Matrix<T>();
}

}  // namespace

template <typename T>
void TrainingPass<T>::LayerState::Resize(const ModelConfig& config, int64_t rows) {
  const Dimensions size(config);
  q.Resize(rows, size.query);
  k.Resize(rows, size.key_value);
  v.Resize(rows, size.key_value);
  if (config.qk_norm) raw_qk.Resize(rows, size.query + size.key_value);
  attention.Resize(rows, size.query);
  gate_up.Resize(rows, 2 * size.intermediate);
  x_mid.Resize(rows, size.hidden);
  lse.Resize(rows, config.num_heads);
  attention_inv_rms.resize(rows);
  mlp_inv_rms.resize(rows);
}

template <typename T>
void TrainingPass<T>::BackwardState::Resize(const Dimensions& size, int64_t rows) {
  dx.Resize(rows, size.hidden);
  d_attention.Resize(rows, size.query);
  dq.Resize(rows, size.query);
  dk.Resize(rows, size.key_value);
  dv.Resize(rows, size.key_value);
  dy.Resize(rows, size.hidden);
  d_gate_up.Resize(rows, 2 * size.intermediate);
  act.Resize(rows, size.intermediate);
  mlp_normed.Resize(rows, size.hidden);
  d_mid.Resize(rows, size.hidden);
  d_qkv.Resize(rows, size.qkv);
  attention_normed.Resize(rows, size.hidden);
}

template <typename T>
TrainingPass<T>::TrainingPass(const Transformer<T>& transformer, ThreadPool& pool, Recompute recompute)
    : transformer_(transformer),
      pool_(pool),
      recompute_(recompute),
      x_(transformer.config().num_layers + 1),
      layers_(recompute == Recompute::kNone ? transformer.config().num_layers : 1),
      threads_(pool.num_threads()) {}

template <typename T>
int64_t TrainingPass<T>::ActivationBytes(const ModelConfig& config, int64_t rows, Recompute recompute) {
  const Dimensions size(config);
  const int64_t t = static_cast<int64_t>(sizeof(T));
  const int64_t layer = t * (2 * size.query + 2 * size.key_value + 2 * size.intermediate) +
                        4 * (size.hidden + config.num_heads + 2) +
                        (config.qk_norm ? t * (size.query + size.key_value) : 0);
  const int64_t backward = 4 * (size.hidden + 2 * size.query + 2 * size.key_value) +
                           t * (4 * size.hidden + 3 * size.intermediate + size.qkv);
  const int64_t layers = recompute == Recompute::kNone ? config.num_layers : 1;
  return rows * (layer * layers + 4 * size.hidden * (config.num_layers + 1) + backward);
}

template <typename T>
void TrainingPass<T>::Forward(const PackedModel<T>& model, const ForestView& forest, bool keep_activations) {
  const ModelConfig& config = transformer_.config();
  num_rows_ = static_cast<int64_t>(forest.token_ids.size());
  CHECK_GT(num_rows_, 0);
  token_ids_.assign(forest.token_ids.begin(), forest.token_ids.end());
  positions_.assign(forest.position_ids.begin(), forest.position_ids.end());
  identity_rows_.resize(num_rows_);
  std::iota(identity_rows_.begin(), identity_rows_.end(), 0);
  plan_ = AttentionPlan(forest.position_ids, forest.subtree_end, MaxTileQueries(transformer_.attention_shape()));

  const int64_t hidden = transformer_.size().hidden;
  x_[0].Resize(num_rows_, hidden);
  pool_.Run([&](Team& team) { transformer_.Embed(team, model, token_ids_.data(), x_[0].view()); });
  for (int64_t i = 0; i < config.num_layers; ++i) {
    // Without activations two buffers take turns; the last layer's output always ends in x_.back().
    const int64_t from = keep_activations ? i : i % 2;
    const int64_t to = keep_activations || i + 1 == config.num_layers ? i + 1 : (i + 1) % 2;
    LayerState& state = layers_[keep_activations && recompute_ == Recompute::kNone ? i : 0];
    state.Resize(config, num_rows_);
    x_[to].Resize(num_rows_, hidden);
    ForwardLayer(model.layers[i], x_[from].view(), state, x_[to].view());
  }
}

template <typename T>
void TrainingPass<T>::ForwardLayer(const PackedLayer<T>& layer, Matrix<const float> x, LayerState& state,
                                   Matrix<float> x_out) {
  const KvDestination<T> all_kv{state.k.view(), state.v.view(), nullptr};
  pool_.ParallelFor(NumTiles(), [&](int64_t index, int thread) {
    const int64_t begin = index * kRowTile, end = std::min(num_rows_, begin + kRowTile);
    Team alone = TeamOfOne();
    TileScratch<T>& scratch = threads_[thread].tile;
    scratch.Resize(transformer_.size(), end - begin);
    const KvDestination<T> kv{all_kv.k, all_kv.v, identity_rows_.data() + begin};
    const Matrix<T> raw_qk = state.raw_qk.rows() == 0 ? NoMatrix<T>() : state.raw_qk.view().Rows(begin, end);
    transformer_.AttentionInput(alone, layer, positions_.data() + begin, x.Rows(begin, end), scratch,
                                state.q.view().Rows(begin, end), kv, state.attention_inv_rms.data() + begin, raw_qk);
  });
  const AttentionShape& shape = transformer_.attention_shape();
  pool_.ParallelFor(plan_.num_tiles() * shape.num_kv_heads, [&](int64_t index, int) {
    AttentionForward<T>(shape, index % shape.num_kv_heads, plan_.tile(index / shape.num_kv_heads), state.q.view(),
                        state.k.view(), state.v.view(), state.attention.view(), state.lse.view());
  });
  pool_.ParallelFor(NumTiles(), [&](int64_t index, int thread) {
    const int64_t begin = index * kRowTile, end = std::min(num_rows_, begin + kRowTile);
    Team alone = TeamOfOne();
    TileScratch<T>& scratch = threads_[thread].tile;
    scratch.Resize(transformer_.size(), end - begin);
    const Matrix<float> x_mid = state.x_mid.view().Rows(begin, end);
    transformer_.AttentionOutput(alone, layer, state.attention.view().Rows(begin, end), x.Rows(begin, end), scratch,
                                 x_mid);
    transformer_.Mlp(alone, layer, x_mid, scratch, state.gate_up.view().Rows(begin, end), x_out.Rows(begin, end),
                     state.mlp_inv_rms.data() + begin);
  });
}

template <typename T>
void TrainingPass<T>::GatherHidden(const PackedModel<T>& model, absl::Span<const int32_t> rows, Matrix<T> hidden) {
  const Matrix<const float> x = x_.back().view();
  pool_.Run([&](Team& team) {
    const RowShare mine(team, static_cast<int64_t>(rows.size()));
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      transformer_.FinalNorm(model, x.Rows(rows[i], rows[i] + 1), hidden.Rows(i, i + 1), nullptr);
    }
  });
}

template <typename T>
void TrainingPass<T>::AddWeightTasks(Matrix<const T> dy, int64_t column, Matrix<const T> x,
                                     const ParameterLayout::Entry& entry, std::vector<WeightTask>& tasks) {
  for (int64_t row = 0; row < entry.rows(); row += kWeightTaskRows) {
    tasks.push_back({dy, column, x, entry.offset, row, std::min(entry.rows(), row + kWeightTaskRows)});
  }
}

template <typename T>
void TrainingPass<T>::RunWeightTasks(const std::vector<WeightTask>& tasks, MatMulBackend backend, GradientSink& sink) {
  pool_.ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t index, int thread) {
    const WeightTask& task = tasks[index];
    OwnedMatrix<float>& weight = threads_[thread].weight;
    const int64_t rows = task.row_end - task.row_begin;
    weight.Resize(rows, task.x.cols);
    WeightGradient<T>(task.dy, task.column + task.row_begin, task.x, weight.view(), backend);
    sink.Add(task.offset + task.row_begin * task.x.cols, absl::MakeConstSpan(weight.data(), rows * task.x.cols));
  });
}

template <typename T>
void TrainingPass<T>::AddPartials(int64_t begin, int64_t count, int64_t offset, GradientSink& sink) {
  std::vector<float> sum(count, 0.0f);
  const Matrix<float> partials = partials_.view();
  for (int64_t tile = 0; tile < NumTiles(); ++tile) {
    const float* row = partials.row(tile) + begin;
    for (int64_t i = 0; i < count; ++i) sum[i] += row[i];
  }
  sink.Add(offset, sum);
}

template <typename T>
void TrainingPass<T>::Backward(const PackedModel<T>& model, const TransposedModel<T>& transposed,
                               absl::Span<const int32_t> rows, Matrix<const float> d_hidden,
                               const ParameterLayout& layout, GradientSink& sink) {
  const ModelConfig& config = transformer_.config();
  const Dimensions& size = transformer_.size();
  backward_.Resize(size, num_rows_);
  const Matrix<float> dx = backward_.dx.view();
  pool_.Run([&](Team& team) {
    const RowShare mine(team, num_rows_);
    std::fill(dx.row(mine.begin), dx.row(mine.end), 0.0f);
  });
  // Final norm: rows may repeat, so in order on one thread (a few per mille of the pass).
  std::vector<float> d_gain(size.hidden, 0.0f);
  OwnedMatrix<T> unused(1, size.hidden);
  const Matrix<const float> last = x_.back().view();
  for (size_t i = 0; i < rows.size(); ++i) {
    float inv_rms = 0;
    const Matrix<const float> x = last.Rows(rows[i], rows[i] + 1);
    transformer_.FinalNorm(model, x, unused.view(), &inv_rms);
    RmsNormBackward(x, model.final_norm, &inv_rms, d_hidden.Rows(i, i + 1), dx.Rows(rows[i], rows[i] + 1),
                    d_gain.data());
  }
  sink.Add(layout.Get(kFinalNormName).offset, d_gain);

  // Columns of the partial sums: MLP norm | attention norm | q, k, v bias | q norm | k norm.
  const int64_t kBias = 2 * size.hidden, kQueryNorm = kBias + size.qkv, kKeyNorm = kQueryNorm + config.head_dim;
  partials_.Resize(NumTiles(), kKeyNorm + config.head_dim);
  for (int64_t i = config.num_layers - 1; i >= 0; --i) {
    LayerState& state = layers_[recompute_ == Recompute::kNone ? i : 0];
    const Matrix<const float> x = x_[i].view();
    if (recompute_ == Recompute::kLayer) ForwardLayer(model.layers[i], x, state, x_[i + 1].view());
    std::fill(partials_.data(), partials_.data() + partials_.rows() * partials_.cols(), 0.0f);
    const LayerNames names(i);
    std::vector<WeightTask> tasks;
    BackwardMlp(model.layers[i], transposed.layer(i), state);
    AddWeightTasks(backward_.dy.view(), 0, backward_.act.view(), layout.Get(names.down), tasks);
    AddWeightTasks(backward_.d_gate_up.view(), 0, backward_.mlp_normed.view(), layout.Get(names.gate), tasks);
    AddWeightTasks(backward_.d_gate_up.view(), size.intermediate, backward_.mlp_normed.view(), layout.Get(names.up),
                   tasks);
    AddWeightTasks(backward_.d_mid.view(), 0, state.attention.view(), layout.Get(names.output), tasks);
    BackwardAttention(state);
    BackwardInput(model.layers[i], transposed.layer(i), x, state);
    const Matrix<const T> normed = backward_.attention_normed.view();
    AddWeightTasks(backward_.d_qkv.view(), 0, normed, layout.Get(names.q), tasks);
    AddWeightTasks(backward_.d_qkv.view(), size.query, normed, layout.Get(names.k), tasks);
    AddWeightTasks(backward_.d_qkv.view(), size.query + size.key_value, normed, layout.Get(names.v), tasks);
    RunWeightTasks(tasks, transposed.backend(), sink);
    AddPartials(0, size.hidden, layout.Get(names.mlp_norm).offset, sink);
    AddPartials(size.hidden, size.hidden, layout.Get(names.attention_norm).offset, sink);
    if (config.attention_bias) {
      AddPartials(kBias, size.query, layout.Get(names.q_bias).offset, sink);
      AddPartials(kBias + size.query, size.key_value, layout.Get(names.k_bias).offset, sink);
      AddPartials(kBias + size.query + size.key_value, size.key_value, layout.Get(names.v_bias).offset, sink);
    }
    if (config.qk_norm) {
      AddPartials(kQueryNorm, config.head_dim, layout.Get(names.q_norm).offset, sink);
      AddPartials(kKeyNorm, config.head_dim, layout.Get(names.k_norm).offset, sink);
    }
  }
  BackwardEmbedding(layout, sink);
}

// From the gradient of the layer's output (dx) to that of x_mid (dx again) and of the attention output (d_attention);
// leaves what the weight gradients of down, gate, up and output need.
template <typename T>
void TrainingPass<T>::BackwardMlp(const PackedLayer<T>& layer, const typename TransposedModel<T>::Layer& transposed,
                                  LayerState& state) {
  const Dimensions& size = transformer_.size();
  const float eps = transformer_.config().rms_norm_eps;
  pool_.ParallelFor(NumTiles(), [&](int64_t index, int thread) {
    const int64_t begin = index * kRowTile, end = std::min(num_rows_, begin + kRowTile);
    Team alone = TeamOfOne();
    ThreadState& own = threads_[thread];
    own.wide.Resize(end - begin, size.intermediate);
    own.narrow.Resize(end - begin, size.hidden);
    const Matrix<float> d_act = own.wide.view(), d_normed = own.narrow.view();
    const Matrix<float> dx = backward_.dx.view().Rows(begin, end);
    const Matrix<T> dy = backward_.dy.view().Rows(begin, end);
    const Matrix<T> d_gate_up = backward_.d_gate_up.view().Rows(begin, end);
    const Matrix<const float> x_mid = state.x_mid.view().Rows(begin, end);
    ConvertRows<T>(dx, dy);
    MatMul<T, float>(alone, dy, transposed.down, d_act);
    SwiGluBackward<T>(state.gate_up.view().Rows(begin, end), d_act, d_gate_up, backward_.act.view().Rows(begin, end));
    MatMul<T, float>(alone, d_gate_up, transposed.gate_up, d_normed);
    RmsNormForward<T>(x_mid, layer.mlp_norm, eps, backward_.mlp_normed.view().Rows(begin, end), nullptr);
    RmsNormBackward(x_mid, layer.mlp_norm, state.mlp_inv_rms.data() + begin, d_normed, dx, partials_.view().row(index));
    const Matrix<T> d_mid = backward_.d_mid.view().Rows(begin, end);
    ConvertRows<T>(dx, d_mid);
    MatMul<T, float>(alone, d_mid, transposed.output, backward_.d_attention.view().Rows(begin, end));
  });
}

template <typename T>
void TrainingPass<T>::BackwardAttention(LayerState& state) {
  const AttentionShape& shape = transformer_.attention_shape();
  const Matrix<float> dk = backward_.dk.view(), dv = backward_.dv.view();
  pool_.Run([&](Team& team) {
    const RowShare mine(team, num_rows_);
    std::fill(dk.row(mine.begin), dk.row(mine.end), 0.0f);
    std::fill(dv.row(mine.begin), dv.row(mine.end), 0.0f);
  });
  const std::vector<AttentionPlan::Tree>& trees = plan_.trees();
  pool_.ParallelFor(static_cast<int64_t>(trees.size()) * shape.num_kv_heads, [&](int64_t index, int) {
    const AttentionPlan::Tree& tree = trees[index / shape.num_kv_heads];
    for (int64_t t = tree.tile_begin; t < tree.tile_end; ++t) {
      AttentionBackward<T>(shape, index % shape.num_kv_heads, plan_.tile(t), state.q.view(), state.k.view(),
                           state.v.view(), state.attention.view(), state.lse.view(), backward_.d_attention.view(),
                           backward_.dq.view(), dk, dv);
    }
  });
}

// Rows [begin, end) of the way back through rotation, q/k norm and bias. `partial` is the tile's row of partial sums.
template <typename T>
void TrainingPass<T>::QkvBackward(const PackedLayer<T>& layer, LayerState& state, int64_t begin, int64_t end,
                                  float* partial) {
  const Dimensions& size = transformer_.size();
  const QkvPost post = transformer_.Post(layer);
  QkvPostGradients gradients;
  if (layer.qkv_bias != nullptr) gradients.bias = partial + 2 * size.hidden;
  std::vector<float> raw;
  if (layer.query_norm != nullptr) {
    gradients.query_norm = partial + 2 * size.hidden + size.qkv;
    gradients.key_norm = gradients.query_norm + post.head_dim;
    raw.resize(size.qkv);
  }
  for (int64_t r = begin; r < end; ++r) {
    if (!raw.empty()) {
      const T* stored = state.raw_qk.view().row(r);
      for (int64_t i = 0; i < size.query + size.key_value; ++i) raw[i] = ToFloat(stored[i]);
    }
    QkvPostBackward<T>(post, positions_[r], raw.empty() ? nullptr : raw.data(), backward_.dq.view().row(r),
                       backward_.dk.view().row(r), backward_.dv.view().row(r), backward_.d_qkv.view().row(r),
                       gradients);
  }
}

template <typename T>
void TrainingPass<T>::BackwardInput(const PackedLayer<T>& layer, const typename TransposedModel<T>::Layer& transposed,
                                    Matrix<const float> x, LayerState& state) {
  const Dimensions& size = transformer_.size();
  pool_.ParallelFor(NumTiles(), [&](int64_t index, int thread) {
    const int64_t begin = index * kRowTile, end = std::min(num_rows_, begin + kRowTile);
    Team alone = TeamOfOne();
    ThreadState& own = threads_[thread];
    own.narrow.Resize(end - begin, size.hidden);
    float* partial = partials_.view().row(index);
    const Matrix<float> d_normed = own.narrow.view();
    QkvBackward(layer, state, begin, end, partial);
    MatMul<T, float>(alone, backward_.d_qkv.view().Rows(begin, end), transposed.qkv, d_normed);
    RmsNormForward<T>(x.Rows(begin, end), layer.attention_norm, transformer_.config().rms_norm_eps,
                      backward_.attention_normed.view().Rows(begin, end), nullptr);
    RmsNormBackward(x.Rows(begin, end), layer.attention_norm, state.attention_inv_rms.data() + begin, d_normed,
                    backward_.dx.view().Rows(begin, end), partial + size.hidden);
  });
}

// Rows of equal token ids add up in row order.
template <typename T>
void TrainingPass<T>::BackwardEmbedding(const ParameterLayout& layout, GradientSink& sink) {
  const int64_t hidden = transformer_.size().hidden;
  const int64_t offset = layout.Get(kEmbeddingName).offset;
  std::vector<int32_t> order(num_rows_);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return token_ids_[a] < token_ids_[b]; });
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < num_rows_; ++i) {
    if (i == 0 || token_ids_[order[i]] != token_ids_[order[i - 1]]) starts.push_back(i);
  }
  starts.push_back(num_rows_);
  const Matrix<const float> dx = backward_.dx.view();
  pool_.ParallelFor(static_cast<int64_t>(starts.size()) - 1, [&](int64_t group, int) {
    std::vector<float> sum(hidden, 0.0f);
    for (int64_t i = starts[group]; i < starts[group + 1]; ++i) {
      const float* row = dx.row(order[i]);
      for (int64_t j = 0; j < hidden; ++j) sum[j] += row[j];
    }
    sink.Add(offset + token_ids_[order[starts[group]]] * hidden, sum);
  });
}

template class TrainingPass<float>;
template class TrainingPass<Bf16>;

}  // namespace lockstep::model
