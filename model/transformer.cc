#include "model/transformer.h"

#include "model/kernels/elementwise.h"
#include "model/kernels/embedding.h"
#include "runtime/base/check.h"

namespace lockstep::model {
namespace {

RopeParameters RopeParametersOf(const ModelConfig& config, int64_t num_positions) {
  const bool llama3 = config.rope.scaling == RopeConfig::Scaling::kLlama3;
  return RopeParameters{.head_dim = config.head_dim,
                        .max_positions = num_positions,
                        .theta = config.rope.theta,
                        .pairing = RopePairing::kHalves,
                        .scaling = llama3 ? RopeParameters::Scaling::kLlama3 : RopeParameters::Scaling::kNone,
                        .factor = config.rope.factor,
                        .low_freq_factor = config.rope.low_freq_factor,
                        .high_freq_factor = config.rope.high_freq_factor,
                        .original_max_positions = config.rope.original_max_position_embeddings};
}

}  // namespace

template <typename T>
void TileScratch<T>::Resize(const Dimensions& size, int64_t rows) {
  normed.Resize(rows, size.hidden);
  qkv.Resize(rows, size.qkv);
  delta.Resize(rows, size.hidden);
  act.Resize(rows, size.intermediate);
}

template <typename T>
Transformer<T>::Transformer(const ModelConfig& config, int64_t num_positions)
    : config_(config),
      size_(config),
      attention_shape_{config.num_heads, config.num_kv_heads, config.head_dim},
      rope_(RopeParametersOf(config, num_positions)) {}

template <typename T>
void Transformer<T>::Embed(Team& team, const PackedModel<T>& model, const int32_t* token_ids, Matrix<float> x) const {
  const RowShare mine(team, x.rows);
  EmbeddingForward<T>(model.embedding, absl::MakeConstSpan(token_ids + mine.begin, mine.end - mine.begin),
                      x.Rows(mine.begin, mine.end));
}

template <typename T>
QkvPost Transformer<T>::Post(const PackedLayer<T>& layer) const {
  return QkvPost{.num_heads = config_.num_heads,
                 .num_kv_heads = config_.num_kv_heads,
                 .head_dim = config_.head_dim,
                 .bias = layer.qkv_bias,
                 .query_norm = layer.query_norm,
                 .key_norm = layer.key_norm,
                 .norm_eps = config_.rms_norm_eps,
                 .rope = &rope_};
}

template <typename T>
void Transformer<T>::AttentionInput(Team& team, const PackedLayer<T>& layer, const int32_t* positions,
                                    Matrix<const float> x, TileScratch<T>& scratch, Matrix<T> q,
                                    const KvDestination<T>& kv, float* inv_rms, Matrix<T> raw_qk) const {
  const RowShare mine(team, x.rows);
  const Matrix<T> normed = scratch.normed.view();
  RmsNormForward<T>(x.Rows(mine.begin, mine.end), layer.attention_norm, config_.rms_norm_eps,
                    normed.Rows(mine.begin, mine.end), inv_rms == nullptr ? nullptr : inv_rms + mine.begin);
  team.Sync();
  const Matrix<float> qkv = scratch.qkv.view();
  MatMul<T, float>(team, normed, layer.qkv, qkv);
  if (raw_qk.data != nullptr) {
    ConvertRows<T>(qkv.Rows(mine.begin, mine.end).Cols(0, raw_qk.cols), raw_qk.Rows(mine.begin, mine.end));
  }
  const QkvPost post = Post(layer);
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    const int32_t kv_row = kv.kv_rows[r];
    QkvPostForward<T>(post, positions[r], qkv.row(r), q.row(r), kv.k.row(kv_row), kv.v.row(kv_row));
  }
}

template <typename T>
void Transformer<T>::AttentionOutput(Team& team, const PackedLayer<T>& layer, Matrix<const T> attention,
                                     Matrix<const float> x, TileScratch<T>& scratch, Matrix<float> x_mid) const {
  const RowShare mine(team, x.rows);
  const Matrix<float> delta = scratch.delta.view();
  MatMul<T, float>(team, attention, layer.output, delta);
  AddRows(x.Rows(mine.begin, mine.end), delta.Rows(mine.begin, mine.end), x_mid.Rows(mine.begin, mine.end));
}

template <typename T>
void Transformer<T>::Mlp(Team& team, const PackedLayer<T>& layer, Matrix<const float> x_mid, TileScratch<T>& scratch,
                         Matrix<T> gate_up, Matrix<float> x_out, float* inv_rms) const {
  const RowShare mine(team, x_mid.rows);
  const Matrix<T> normed = scratch.normed.view();
  const Matrix<T> act = scratch.act.view();
  const Matrix<float> delta = scratch.delta.view();
  RmsNormForward<T>(x_mid.Rows(mine.begin, mine.end), layer.mlp_norm, config_.rms_norm_eps,
                    normed.Rows(mine.begin, mine.end), inv_rms == nullptr ? nullptr : inv_rms + mine.begin);
  team.Sync();
  MatMul<T, T>(team, normed, layer.gate_up, gate_up);
  SwiGluForward<T>(gate_up.Rows(mine.begin, mine.end), act.Rows(mine.begin, mine.end));
  team.Sync();
  MatMul<T, float>(team, act, layer.down, delta);
  AddRows(x_mid.Rows(mine.begin, mine.end), delta.Rows(mine.begin, mine.end), x_out.Rows(mine.begin, mine.end));
}

template <typename T>
void Transformer<T>::FinalNorm(const PackedModel<T>& model, Matrix<const float> x, Matrix<T> normed,
                               float* inv_rms) const {
  RmsNormForward<T>(x, model.final_norm, config_.rms_norm_eps, normed, inv_rms);
}

template struct TileScratch<float>;
template struct TileScratch<Bf16>;
template class Transformer<float>;
template class Transformer<Bf16>;

}  // namespace lockstep::model
