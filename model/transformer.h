// The decoder of Llama and Qwen models, layer by layer: the stages that sampling and training share.
//
//   x = embedding[token]
//   per layer:  x += output(attention(rope(qkv(norm(x)))));   x += down(swiglu(gate_up(norm(x))))
//   logits = head(norm(x))
//
// A stage works on a tile of rows (tokens) and is run by a Team: decoding gives all threads one tile (they share the
// outputs of each product), training gives each thread tiles of its own (a team of one). Rounding points: the residual
// stream is float32; what enters a matrix product, q, k, v, the attention output, gate_up and act are rounded to T. So
// a row has the same bits either way.
//
// Thread contract: a Transformer is immutable. Stages end so that each thread may read the rows it owns (RowShare); the
// caller syncs where other rows are read.
#ifndef LOCKSTEP_MODEL_TRANSFORMER_H_
#define LOCKSTEP_MODEL_TRANSFORMER_H_

#include <cstdint>
#include <memory>

#include "model/kernels/attention.h"
#include "model/kernels/qkv_post.h"
#include "model/kernels/rope.h"
#include "model/model_config.h"
#include "model/packed_model.h"
#include "runtime/base/thread_pool.h"
#include "runtime/device/tensor.h"

namespace lockstep::model {

// Rows [begin, end) of a tile that a thread of the team handles in row kernels.
struct RowShare {
  int64_t begin, end;
  RowShare(const Team& team, int64_t rows)
      : begin(rows * team.rank() / team.size()), end(rows * (team.rank() + 1) / team.size()) {}
};

// Intermediate values of one tile; shared by the team that works on it. Grows as needed, so keep it.
template <typename T>
struct TileScratch {
  OwnedMatrix<T> normed;     // [rows, hidden]
  OwnedMatrix<float> qkv;    // [rows, query + 2 key_value]
  OwnedMatrix<float> delta;  // [rows, hidden]
  OwnedMatrix<T> act;        // [rows, intermediate]
  void Resize(const Dimensions& size, int64_t rows);
};

// Where the keys and values of a tile go: row r to row kv_rows[r] of k and v.
template <typename T>
struct KvDestination {
  Matrix<T> k, v;                    // [*, key_value]
  const int32_t* kv_rows = nullptr;  // [rows]
};

template <typename T>
class Transformer {
 public:
  // Positions from 0 to num_positions - 1 can be used.
  Transformer(const ModelConfig& config, int64_t num_positions);

  const ModelConfig& config() const { return config_; }
  const Dimensions& size() const { return size_; }
  const AttentionShape& attention_shape() const { return attention_shape_; }
  // What follows the q/k/v product of a layer; valid while this and the layer live.
  QkvPost Post(const PackedLayer<T>& layer) const;

  // x // [rows, hidden] f32
  void Embed(Team& team, const PackedModel<T>& model, const int32_t* token_ids, Matrix<float> x) const;

  // Norm, projections, biases, q/k norm, rotation; q // [rows, query]. inv_rms // [rows] or nullptr.
  // raw_qk // [rows, query + key_value]: q and k as the product gave them, kept for the backward pass of models with
  // q/k norms; else an empty view.
  void AttentionInput(Team& team, const PackedLayer<T>& layer, const int32_t* positions, Matrix<const float> x,
                      TileScratch<T>& scratch, Matrix<T> q, const KvDestination<T>& kv, float* inv_rms,
                      Matrix<T> raw_qk) const;

  // x_mid = x + output(attention)      attention // [rows, query]; may be the same as x
  void AttentionOutput(Team& team, const PackedLayer<T>& layer, Matrix<const T> attention, Matrix<const float> x,
                       TileScratch<T>& scratch, Matrix<float> x_mid) const;

  // x_out = x_mid + down(swiglu(gate_up(norm(x_mid))))      gate_up // [rows, 2 intermediate]
  void Mlp(Team& team, const PackedLayer<T>& layer, Matrix<const float> x_mid, TileScratch<T>& scratch,
           Matrix<T> gate_up, Matrix<float> x_out, float* inv_rms) const;

  // Rows in place of x: rounded final norm, what the head multiplies.   inv_rms // [rows] or nullptr
  void FinalNorm(const PackedModel<T>& model, Matrix<const float> x, Matrix<T> normed, float* inv_rms) const;

 private:
  ModelConfig config_;
  Dimensions size_;
  AttentionShape attention_shape_;
  RopeTable rope_;
};

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_TRANSFORMER_H_
