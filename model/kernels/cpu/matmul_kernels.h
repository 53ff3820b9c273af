// The inner loops of the matrix products, compiled for several instruction sets. Internal to model/kernels/cpu.
#ifndef LOCKSTEP_MODEL_KERNELS_CPU_MATMUL_KERNELS_H_
#define LOCKSTEP_MODEL_KERNELS_CPU_MATMUL_KERNELS_H_

#include <cstdint>

#include "runtime/device/tensor.h"

namespace lockstep::model::internal {

// c[m, j] = (add ? c[m, j] : 0) then, for each k in order, c = fma(a[m, k], b[k, j], c).
//   a // element (m, k) at a[m * a_row_stride + k * a_k_stride]
//   b // [depth][kPanel] f32, contiguous      c // [rows][kPanel] f32, contiguous
void PanelProduct(int64_t rows, int64_t depth, const float* a, int64_t a_row_stride, int64_t a_k_stride, const float* b,
                  float* c, bool add);

void ConvertToFloat(const Bf16* from, int64_t count, float* to);
void ConvertToBf16(const float* from, int64_t count, Bf16* to);

// Name of the instruction set in use, part of the kernel signature.
const char* KernelTargetName();

}  // namespace lockstep::model::internal

#endif  // LOCKSTEP_MODEL_KERNELS_CPU_MATMUL_KERNELS_H_
