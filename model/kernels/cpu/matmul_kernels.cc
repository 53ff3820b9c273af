#include "model/kernels/cpu/matmul_kernels.h"

#include <algorithm>

#include "model/kernels/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/kernels/cpu/matmul_kernels.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "model/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::model::internal::HWY_NAMESPACE {

// Rows of a register tile: three accumulators a row, so 24 of 32 registers with AVX-512 and 12 of 16 elsewhere.
constexpr int kMaxTileRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;

#define LOCKSTEP_TILE_ROWS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

// One tile: kRows x 3 vectors of outputs, each a chain over k. Accumulators are named variables: arrays would go to
// memory.
template <int kRows>
HWY_INLINE void Tile(int64_t depth, const float* HWY_RESTRICT a, int64_t a_row_stride, int64_t a_k_stride,
                     const float* HWY_RESTRICT b, float* HWY_RESTRICT c, bool add, const char* next,
                     int64_t next_step) {
  const Float d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
#define LOCKSTEP_DECLARE(i)                                                  \
  Vec acc##i##a = hn::Zero(d), acc##i##b = acc##i##a, acc##i##c = acc##i##a; \
  (void)acc##i##a, (void)acc##i##b, (void)acc##i##c;
  LOCKSTEP_TILE_ROWS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE
  if (add) {
#define LOCKSTEP_LOAD(i)                                  \
  if constexpr (kRows > i) {                              \
    acc##i##a = hn::LoadU(d, c + i * kPanel);             \
    acc##i##b = hn::LoadU(d, c + i * kPanel + lanes);     \
    acc##i##c = hn::LoadU(d, c + i * kPanel + 2 * lanes); \
  }
    LOCKSTEP_TILE_ROWS(LOCKSTEP_LOAD)
#undef LOCKSTEP_LOAD
  }
  for (int64_t k = 0; k < depth; ++k) {
    const Vec b0 = hn::LoadU(d, b + k * kPanel);
    const Vec b1 = hn::LoadU(d, b + k * kPanel + lanes);
    const Vec b2 = hn::LoadU(d, b + k * kPanel + 2 * lanes);
    const float* HWY_RESTRICT ak = a + k * a_k_stride;
    __builtin_prefetch(next + k * next_step, 0, 2);
#define LOCKSTEP_STEP(i)                            \
  if constexpr (kRows > i) {                        \
    const Vec x = hn::Set(d, ak[i * a_row_stride]); \
    acc##i##a = hn::MulAdd(x, b0, acc##i##a);       \
    acc##i##b = hn::MulAdd(x, b1, acc##i##b);       \
    acc##i##c = hn::MulAdd(x, b2, acc##i##c);       \
  }
    LOCKSTEP_TILE_ROWS(LOCKSTEP_STEP)
#undef LOCKSTEP_STEP
  }
#define LOCKSTEP_STORE(i)                                 \
  if constexpr (kRows > i) {                              \
    hn::StoreU(acc##i##a, d, c + i * kPanel);             \
    hn::StoreU(acc##i##b, d, c + i * kPanel + lanes);     \
    hn::StoreU(acc##i##c, d, c + i * kPanel + 2 * lanes); \
  }
  LOCKSTEP_TILE_ROWS(LOCKSTEP_STORE)
#undef LOCKSTEP_STORE
}
#undef LOCKSTEP_TILE_ROWS

template <int kRows>
void TileRows(int64_t rows, int64_t depth, const float* a, int64_t a_row_stride, int64_t a_k_stride, const float* b,
              float* c, bool add, const char* next, int64_t next_step) {
  const int64_t width = 3 * static_cast<int64_t>(hn::Lanes(Float()));
  if constexpr (kRows > 0) {
    if (rows != kRows) {
      TileRows<kRows - 1>(rows, depth, a, a_row_stride, a_k_stride, b, c, add, next, next_step);
      return;
    }
    for (int64_t j = 0; j < kPanel; j += width) {
      Tile<kRows>(depth, a, a_row_stride, a_k_stride, b + j, c + j, add, next, next_step);
    }
  }
}

void PanelProduct(int64_t rows, int64_t depth, const LeftFactor& a, const float* b, float* c, bool add,
                  NextBlock next) {
  constexpr int64_t kLine = 64;
  const int64_t tiles = (rows + kMaxTileRows - 1) / kMaxTileRows;
  // Bytes of the next block per step of k; a few rows cannot hide more than a line a step.
  const int64_t step = std::min(kLine, (next.bytes + tiles * depth - 1) / (tiles * depth));
  const char* from = next.data != nullptr ? static_cast<const char*>(next.data) : reinterpret_cast<const char*>(b);
  for (int64_t m = 0; m < rows; m += kMaxTileRows) {
    const int64_t count = std::min<int64_t>(rows - m, kMaxTileRows);
    const float* data = a.data + m / kTileRows * a.tile_stride + m % kTileRows * a.row_stride;
    TileRows<kMaxTileRows>(count, depth, data, a.row_stride, a.k_stride, b, c + m * kPanel, add, from, step);
    from += step * depth;
  }
}

template <typename T>
HWY_INLINE void SpreadOf(const T* from, int64_t rows, float* to, int64_t tile_stride) {
  // As many lanes as a tile has rows, so that each load fills one tile.
  const hn::CappedTag<float, kTileRows> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t m = 0;
  for (; m + lanes <= rows; m += lanes) {
    float* target = to + m / kTileRows * tile_stride + m % kTileRows;
    if constexpr (std::is_same_v<T, float>) {
      hn::StoreU(hn::LoadU(d, from + m), d, target);
    } else {
      const hn::Rebind<uint16_t, decltype(d)> du;
      const hn::Rebind<uint32_t, decltype(d)> dw;
      const auto bits = hn::LoadU(du, reinterpret_cast<const uint16_t*>(from + m));
      hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(dw, bits))), d, target);
    }
  }
  for (; m < rows; ++m) to[m / kTileRows * tile_stride + m % kTileRows] = ToFloat(from[m]);
}
void SpreadFloats(const float* from, int64_t rows, float* to, int64_t tile_stride) {
  SpreadOf(from, rows, to, tile_stride);
}
void SpreadBf16(const Bf16* from, int64_t rows, float* to, int64_t tile_stride) {
  SpreadOf(from, rows, to, tile_stride);
}

void ConvertToFloat(const Bf16* from, int64_t count, float* to) {
  ForVectors(count, [&](int64_t i, int64_t n) HWY_ATTR { StoreUpTo(LoadUpTo(from + i, n), to + i, n); });
}

void ConvertToBf16(const float* from, int64_t count, Bf16* to) {
  ForVectors(count, [&](int64_t i, int64_t n) HWY_ATTR { StoreUpTo(LoadUpTo(from + i, n), to + i, n); });
}

const char* KernelTargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace lockstep::model::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::model::internal {

HWY_EXPORT(PanelProduct);
HWY_EXPORT(SpreadFloats);
HWY_EXPORT(SpreadBf16);
HWY_EXPORT(ConvertToFloat);
HWY_EXPORT(ConvertToBf16);
HWY_EXPORT(KernelTargetName);

void PanelProduct(int64_t rows, int64_t depth, const LeftFactor& a, const float* b, float* c, bool add,
                  NextBlock next) {
  HWY_DYNAMIC_DISPATCH(PanelProduct)(rows, depth, a, b, c, add, next);
}
void SpreadOverTiles(const float* from, int64_t rows, float* to, int64_t tile_stride) {
  HWY_DYNAMIC_DISPATCH(SpreadFloats)(from, rows, to, tile_stride);
}
void SpreadOverTiles(const Bf16* from, int64_t rows, float* to, int64_t tile_stride) {
  HWY_DYNAMIC_DISPATCH(SpreadBf16)(from, rows, to, tile_stride);
}
void ConvertToFloat(const Bf16* from, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(ConvertToFloat)(from, count, to);
}
void ConvertToBf16(const float* from, int64_t count, Bf16* to) { HWY_DYNAMIC_DISPATCH(ConvertToBf16)(from, count, to); }
const char* KernelTargetName() { return HWY_DYNAMIC_DISPATCH(KernelTargetName)(); }

}  // namespace lockstep::model::internal
#endif
