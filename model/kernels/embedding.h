// Embedding lookup and its gradient. Single-threaded; cut columns with Matrix::Cols to share the work of the gradient.
#ifndef LOCKSTEP_MODEL_KERNELS_EMBEDDING_H_
#define LOCKSTEP_MODEL_KERNELS_EMBEDDING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "runtime/device/tensor.h"

namespace lockstep::model {

// x[r] = table[ids[r]].     table // [vocab, cols] T (float or Bf16)     x // [rows, cols] f32
template <typename T>
void EmbeddingForward(Matrix<const T> table, absl::Span<const int32_t> ids, Matrix<float> x);

// d_table[ids[r]] += dx[r], rows in order.     dx // [rows, cols] f32     d_table // [vocab, cols] f32
void EmbeddingBackward(absl::Span<const int32_t> ids, Matrix<const float> dx, Matrix<float> d_table);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_KERNELS_EMBEDDING_H_
