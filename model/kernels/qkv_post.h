// What happens between the q/k/v product and attention: bias, RMSNorm of each query and key head (Qwen3), RoPE, and the
// rounding to the storage type T. One row at a time; a row's result depends on that row and its position alone.
//
//   qkv row // [(num_heads + 2 num_kv_heads) * head_dim] f32: queries, keys, values
//
// Rounding points: everything is float32 until q, k and v are rounded once, at the end. Whoever attends reads the
// rounded values, in decoding as in training.
//
// Single-threaded; reads shared parameters only.
#ifndef LOCKSTEP_MODEL_KERNELS_QKV_POST_H_
#define LOCKSTEP_MODEL_KERNELS_QKV_POST_H_

#include <cstdint>

#include "model/kernels/rope.h"
#include "runtime/device/tensor.h"

namespace lockstep::model {

struct QkvPost {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;               // even, at most 256
  const float* bias = nullptr;        // [(num_heads + 2 num_kv_heads) * head_dim], or nullptr
  const float* query_norm = nullptr;  // [head_dim] gains, or nullptr: no norm; both norms or neither
  const float* key_norm = nullptr;    // [head_dim]
  float norm_eps = 1e-6f;
  const RopeTable* rope = nullptr;  // nullptr: no rotation
  int64_t cols() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

// One row. `qkv` is overwritten (scratch).
//   q // [num_heads * head_dim] T     k, v // [num_kv_heads * head_dim] T, each wherever it belongs (a pool, an array)
template <typename T>
void QkvPostForward(const QkvPost& post, int64_t position, float* qkv, T* q, T* k, T* v);

// Sums over a tile of rows; nullptr where the model has no such parameter. Added to: pass zeroed partial sums per fixed
// tile of rows and add the tiles in order, so that threads cannot change the bits.
struct QkvPostGradients {
  float* bias = nullptr;        // [cols]
  float* query_norm = nullptr;  // [head_dim]
  float* key_norm = nullptr;    // [head_dim]
};

// Gradient of one row. `qkv` is the forward's input (before the bias), read only where there are norms, else nullptr.
//   dq // [num_heads * head_dim] f32     dk, dv // [num_kv_heads * head_dim] f32; all overwritten (scratch)
//   d_qkv // [cols] T
template <typename T>
void QkvPostBackward(const QkvPost& post, int64_t position, const float* qkv, float* dq, float* dk, float* dv, T* d_qkv,
                     QkvPostGradients gradients);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_KERNELS_QKV_POST_H_
