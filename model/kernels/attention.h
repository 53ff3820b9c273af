// Causal attention along paths: the one kernel that decoding with paged keys, prefill, packed training and tree
// training share.
//
// A query at depth p of its path sees the keys at path positions 0..p. Where the key of a position lies is told by a
// row table: key_rows[position] is a row of the key and value arrays, so a paged pool (rows = block * 64 + offset), a
// packed sequence and a branch of a token forest look the same.
//
// Bit rule: the walk goes in fixed blocks of 64 path positions; blocks combine by online softmax in order within spans
// of 1,024 positions, and spans in order. Scores are one chain of fused multiply-adds over head_dim, outputs one chain
// over keys. A query's result depends on its own path alone: not on the queries beside it, their number or the tile's
// alignment. Keys beyond the depth of a query are skipped, never multiplied by zero, so what lies there (even NaN) is
// harmless.
//
// Online softmax: Milakov and Gimelshein, 2018; blockwise form with log-sum-exp for the backward pass: Dao et al.,
// 2022. Grouped queries: Ainslie et al., 2023.
//
// Single-threaded functions; one call handles one key/value head. T is the storage type of q, k, v (float or Bf16).
#ifndef LOCKSTEP_MODEL_KERNELS_ATTENTION_H_
#define LOCKSTEP_MODEL_KERNELS_ATTENTION_H_

#include <cstdint>

#include "runtime/device/tensor.h"

namespace lockstep::model {

struct AttentionShape {
  int64_t num_heads = 0;     // query heads
  int64_t num_kv_heads = 0;  // each serves num_heads / num_kv_heads query heads
  int64_t head_dim = 0;      // at most 256
  int64_t group() const { return num_heads / num_kv_heads; }
};

inline constexpr int64_t kAttentionBlock = 64;
inline constexpr int64_t kAttentionSpan = 1024;
inline constexpr int64_t kMaxHeadDim = 256;

// Queries at consecutive depths of one path: query i is row q_begin + i of q and sits at path position first_depth + i.
struct QueryTile {
  int64_t q_begin = 0;
  int64_t count = 0;  // at most MaxTileQueries(shape)
  int64_t first_depth = 0;
  const int32_t* key_rows = nullptr;  // [first_depth + count] row of each path position
};
int64_t MaxTileQueries(const AttentionShape& shape);

// out[query, head] = softmax(q k^T / sqrt(head_dim)) v for the query heads of `kv_head`.
//   q // [rows, num_heads * head_dim] T       k, v // [rows, num_kv_heads * head_dim] T
//   out // [rows, num_heads * head_dim] T     lse // [rows, num_heads] f32 (log of the sum of exponentials), or data ==
//   nullptr
template <typename T>
void AttentionForward(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const T> q,
                      Matrix<const T> k, Matrix<const T> v, Matrix<T> out, Matrix<float> lse);

// Gradients of one tile and kv_head, given d_out. dq rows are overwritten; dk and dv are added to: the caller fixes the
// order by calling tiles that share keys in order, on one thread.
//   d_out // [rows, num_heads * head_dim] f32     dq // [rows, num_heads * head_dim] f32     dk, dv // [rows,
//   num_kv_heads * head_dim] f32
template <typename T>
void AttentionBackward(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const T> q,
                       Matrix<const T> k, Matrix<const T> v, Matrix<const T> out, Matrix<const float> lse,
                       Matrix<const float> d_out, Matrix<float> dq, Matrix<float> dk, Matrix<float> dv);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_KERNELS_ATTENTION_H_
