// Row kernels between the matrix products: RMSNorm and SwiGLU, forward and backward. Single-threaded; a row's result
// depends on that row alone. T is float or Bf16; arithmetic is float32, rounded to T where it is stored.
#ifndef LOCKSTEP_MODEL_KERNELS_ELEMENTWISE_H_
#define LOCKSTEP_MODEL_KERNELS_ELEMENTWISE_H_

#include <cstdint>

#include "runtime/device/tensor.h"

namespace lockstep::model {

// y = x * gain / sqrt(mean(x^2) + eps), each row on its own (Zhang and Sennrich, 2019).
//   x // [rows, cols] f32      gain // [cols]      y // [rows, cols] T      inv_rms // [rows], or nullptr
template <typename T>
void RmsNormForward(Matrix<const float> x, const float* gain, float eps, Matrix<T> y, float* inv_rms);

// dx += d loss / d x;  dgain += d loss / d gain of these rows, summed in row order (pass zeroed partial sums per fixed
// row tile and add the tiles in order, so that threads cannot change the bits).
//   dy // [rows, cols] f32     inv_rms // [rows] as Forward gave them
void RmsNormBackward(Matrix<const float> x, const float* gain, const float* inv_rms, Matrix<const float> dy,
                     Matrix<float> dx, float* dgain);

// act = silu(gate) * up (Shazeer, 2020).    gate_up // [rows, 2 * cols]: gate then up      act // [rows, cols]
template <typename T>
void SwiGluForward(Matrix<const T> gate_up, Matrix<T> act);

// d_gate_up from d_act; also recomputes act, which the weight gradient of the down projection needs.
//   d_act // [rows, cols] f32     d_gate_up // [rows, 2 * cols] T     act // [rows, cols] T
template <typename T>
void SwiGluBackward(Matrix<const T> gate_up, Matrix<const float> d_act, Matrix<T> d_gate_up, Matrix<T> act);

// y = x + delta.   All // [rows, cols] f32; y may be x.
void AddRows(Matrix<const float> x, Matrix<const float> delta, Matrix<float> y);

// Rounds to T.
template <typename T>
void ConvertRows(Matrix<const float> from, Matrix<T> to);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_KERNELS_ELEMENTWISE_H_
