// Matrix products whose rows do not depend on each other.
//
//   y[r, n] = sum_k x[r, k] * w[n, k]        x // [rows, k] T      w // [n, k] packed, stored as T      y // [rows, n]
//   f32 or T
//
// Bit rule: an output depends neither on the other rows, nor on the number of rows or threads. T is float or Bf16. Two
// backends keep to it (model/kernels/matmul_backend.h); a matrix is packed for one of them, which then multiplies:
//   own     an output is one chain of fused multiply-adds in float32 over k = 0, 1, 2, ... (products of bf16 values are
//           exact in float32), whatever the vector width: AVX2 and AVX-512 give the same bits.
//   onednn  float32 sums in oneDNN's order, which a start-up test shows to be one for all numbers of rows
//           (model/product_check.h).
//
// Weights are packed once a version. own: panels of kPanel outputs, each [k][kPanel], the last one padded with zeros.
// onednn: pieces in its blocked layout (model/kernels/cpu/onednn_matmul.h).
//
// Thread contract: the functions that take a Team are called by all its threads with equal arguments and split the work
// by fixed pieces; they end with team.Sync(). Everything else is single-threaded. Inputs are read-only and may be
// shared.
#ifndef LOCKSTEP_MODEL_KERNELS_MATMUL_H_
#define LOCKSTEP_MODEL_KERNELS_MATMUL_H_

#include <cstdint>

#include "absl/types/span.h"
#include "model/kernels/matmul_backend.h"
#include "runtime/base/check.h"
#include "runtime/base/thread_pool.h"
#include "runtime/device/tensor.h"

namespace lockstep::model {

inline constexpr int64_t kPanel = 48;  // outputs of one panel: a multiple of 3 vectors of 4, 8 and 16 lanes

// A weight matrix in packed form: a view into memory that somebody else owns.
template <typename T>
struct PackedMatrix {
  const T* data = nullptr;   // own: panel p, input i, output j of the panel: data[p * panel_stride + i * kPanel + j]
  int64_t n = 0;             // outputs
  int64_t k = 0;             // inputs
  int64_t panel_stride = 0;  // own: k * kPanel, or more in a slice
  MatMulBackend backend = MatMulBackend::kOwn;

  PackedMatrix() = default;
  PackedMatrix(const T* data, int64_t n, int64_t k, MatMulBackend backend = MatMulBackend::kOwn)
      : data(data), n(n), k(k), panel_stride(k * kPanel), backend(backend) {}
  // The matrix less its inputs outside [k_begin, k_end): its product is a part of the sum. Of kOwn only.
  PackedMatrix InputSlice(int64_t k_begin, int64_t k_end) const {
    CHECK(backend == MatMulBackend::kOwn);
    PackedMatrix slice(data + k_begin * kPanel, n, k_end - k_begin);
    slice.panel_stride = panel_stride;
    return slice;
  }
};

// Elements (not bytes) of the packed form.
int64_t PackedSize(int64_t n, int64_t k, MatMulBackend backend = MatMulBackend::kOwn);

// Outputs of a smaller matrix, of as many inputs, that is multiplied by the same code piece for piece: what is found
// out about it holds for the [n, k] one.
int64_t RepresentativeOutputs(int64_t n, MatMulBackend backend);

// Some rows of a weight matrix as they stand in the model file: [rows, k] float32, contiguous.
struct WeightRows {
  const float* data = nullptr;
  int64_t rows = 0;
};

// Packs the matrix whose rows are those of `blocks`, one block below the other (q, k and v projections are one
// product). `packed` holds PackedSize(sum of rows, k, backend) elements, 64-byte aligned for speed.
template <typename T>
void PackWeights(Team& team, absl::Span<const WeightRows> blocks, int64_t k, T* packed,
                 MatMulBackend backend = MatMulBackend::kOwn);

// Packs its transpose, for dx = dy * w: outputs are the k columns, inputs the rows. PackedSize(k, sum of rows, backend)
// elements.
template <typename T>
void PackTransposed(Team& team, absl::Span<const WeightRows> blocks, int64_t k, T* packed,
                    MatMulBackend backend = MatMulBackend::kOwn);

enum class Store : uint8_t {
  kSet,  // y = product
  kAdd,  // y = y + product, one float32 addition (y is f32)
};

// x // [rows, k]   y // [rows, n]. Splits the work over the team.
template <typename T, typename Out>
void MatMul(Team& team, Matrix<const T> x, const PackedMatrix<T>& w, Matrix<Out> y, Store store = Store::kSet);

// Gradient of a weight matrix, rows [row_begin, row_begin + dw.rows) of it, on one thread:
//   dw[n, k] = sum_t dy[t, row_begin + n] * x[t, k]      own: one chain over t = 0, 1, 2, ...
// dy // [tokens, n] T      x // [tokens, k] T      dw // [rows, k] f32, overwritten
template <typename T>
void WeightGradient(Matrix<const T> dy, int64_t row_begin, Matrix<const T> x, Matrix<float> dw,
                    MatMulBackend backend = MatMulBackend::kOwn);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_KERNELS_MATMUL_H_
