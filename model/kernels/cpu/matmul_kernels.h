// The inner loops of the matrix products, compiled for several instruction sets. Internal to model/kernels/cpu.
#ifndef LOCKSTEP_MODEL_KERNELS_CPU_MATMUL_KERNELS_H_
#define LOCKSTEP_MODEL_KERNELS_CPU_MATMUL_KERNELS_H_

#include <cstdint>

#include "runtime/device/tensor.h"

namespace lockstep::model::internal {

// Where the left factor of a panel product lies: element (m, k) at
//   data[m / kTileRows * tile_stride + m % kTileRows * row_stride + k * k_stride]
inline constexpr int64_t kTileRows = 8;
struct LeftFactor {
  const float* data;
  int64_t tile_stride, row_stride, k_stride;
};

// Memory that the caller reads next. The product asks for it a line at a time while it multiplies: weights come from
// DRAM once a product, and a burst of requests would fill the core's line buffers and stall it.
struct NextBlock {
  const void* data = nullptr;
  int64_t bytes = 0;
};

// c[m, j] = (add ? c[m, j] : 0) then, for each k in order, c = fma(a[m, k], b[k, j], c).
//   b // [depth][kPanel] f32, contiguous      c // [rows][kPanel] f32, contiguous
void PanelProduct(int64_t rows, int64_t depth, const LeftFactor& a, const float* b, float* c, bool add,
                  NextBlock next = {});

// One step of k of a left factor with k_stride kTileRows: element m goes to
//   to[m / kTileRows * tile_stride + m % kTileRows]
void SpreadOverTiles(const float* from, int64_t rows, float* to, int64_t tile_stride);
void SpreadOverTiles(const Bf16* from, int64_t rows, float* to, int64_t tile_stride);

void ConvertToFloat(const Bf16* from, int64_t count, float* to);
void ConvertToBf16(const float* from, int64_t count, Bf16* to);

// Name of the instruction set in use, part of the kernel signature.
const char* KernelTargetName();

}  // namespace lockstep::model::internal

#endif  // LOCKSTEP_MODEL_KERNELS_CPU_MATMUL_KERNELS_H_
