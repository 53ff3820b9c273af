// Matrix products through oneDNN, always on the calling thread alone. Internal to model/kernels/cpu.
//
// Outputs are cut into pieces of one width, packed one after the other, each in the blocked layout that oneDNN asks
// for; inputs are padded with zeros to a multiple of 64. Rows come in blocks of 8, 16, ... 64, the last one padded with
// zeros, so a handful of primitives serves every number of rows, and none is ever compiled for a number that merely
// came up. Results leave oneDNN as float32 and are rounded or added by the project's own kernels.
#ifndef LOCKSTEP_MODEL_KERNELS_CPU_ONEDNN_MATMUL_H_
#define LOCKSTEP_MODEL_KERNELS_CPU_ONEDNN_MATMUL_H_

#include <cstdint>

#include "absl/types/span.h"
#include "model/kernels/matmul.h"

namespace lockstep::model::internal {

int64_t OneDnnPackedSize(int64_t n, int64_t k);
int64_t OneDnnRepresentativeOutputs(int64_t n);

// Contracts of PackWeights, PackTransposed, MatMul and WeightGradient. T: float or Bf16; Out: float, or Bf16 with Bf16.
template <typename T>
void OneDnnPackWeights(Team& team, absl::Span<const WeightRows> blocks, int64_t k, T* packed);
template <typename T>
void OneDnnPackTransposed(Team& team, absl::Span<const WeightRows> blocks, int64_t k, T* packed);
template <typename T, typename Out>
void OneDnnMatMul(Team& team, Matrix<const T> x, const PackedMatrix<T>& w, Matrix<Out> y, Store store);
template <typename T>
void OneDnnWeightGradient(Matrix<const T> dy, int64_t row_begin, Matrix<const T> x, Matrix<float> dw);

}  // namespace lockstep::model::internal

#endif  // LOCKSTEP_MODEL_KERNELS_CPU_ONEDNN_MATMUL_H_
