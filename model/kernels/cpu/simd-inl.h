// Vector helpers shared by the kernels. Included once per target by .cc files that use Highway's foreach_target.
#if defined(LOCKSTEP_MODEL_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_MODEL_KERNELS_CPU_SIMD_INL_H_
#undef LOCKSTEP_MODEL_KERNELS_CPU_SIMD_INL_H_
#else
#define LOCKSTEP_MODEL_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include "runtime/device/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::model::internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// 16 lanes at most: tiles and padding are laid out in multiples of 16 floats.
using Float = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Float>;
using Mask = hn::Mask<Float>;

HWY_INLINE int64_t NumLanes() { return static_cast<int64_t>(hn::Lanes(Float())); }

HWY_INLINE Vec LoadFloats(const float* from) { return hn::LoadU(Float(), from); }
HWY_INLINE Vec LoadFloats(const Bf16* from) {
  const Float d;
  const hn::Rebind<uint16_t, Float> du16;
  const hn::RebindToUnsigned<Float> du32;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
}

HWY_INLINE void StoreFloats(Vec value, float* to) { hn::StoreU(value, Float(), to); }
// Rounds as ToBf16 does.
HWY_INLINE void StoreFloats(Vec value, Bf16* to) {
  const Float d;
  const hn::Rebind<uint16_t, Float> du16;
  const hn::RebindToUnsigned<Float> du32;
  const hn::RebindToSigned<Float> di32;
  const auto bits = hn::BitCast(du32, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(du32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(du32, 0x7fffu), odd)));
  const auto is_nan = hn::RebindMask(du32, hn::IsNaN(value));
  const auto result = hn::IfThenElse(is_nan, hn::Or(upper, hn::Set(du32, 0x40u)), rounded);
  // The values are below 2^16, so the saturating narrowing from signed keeps them.
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di32, result)), du16, reinterpret_cast<uint16_t*>(to));
  (void)d;
}

// First `count` lanes, the others zero; reads nothing beyond them.
template <typename T>
HWY_INLINE Vec LoadPartial(const T* from, int64_t count) {
  alignas(64) T padded[16] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
  return LoadFloats(padded);
}
template <typename T>
HWY_INLINE void StorePartial(Vec value, T* to, int64_t count) {
  alignas(64) T padded[16];
  StoreFloats(value, padded);
  for (int64_t i = 0; i < count; ++i) to[i] = padded[i];
}

// Calls body(index, count) over [0, n) in steps of a vector; only the last step has count < NumLanes().
template <typename Body>
HWY_INLINE void ForVectors(int64_t n, Body body) {
  const int64_t lanes = NumLanes();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i < n) body(i, n - i);
}
template <typename T>
HWY_INLINE Vec LoadUpTo(const T* from, int64_t count) {
  return count == NumLanes() ? LoadFloats(from) : LoadPartial(from, count);
}
template <typename T>
HWY_INLINE void StoreUpTo(Vec value, T* to, int64_t count) {
  if (count == NumLanes()) {
    StoreFloats(value, to);
  } else {
    StorePartial(value, to, count);
  }
}

// e^x within 2 units of 2^-24: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r (relative error 3.1e-9, fitted
// to be least with the first two coefficients 1), scaled by 2^n. n is rounded by adding 1.5 * 2^23, which leaves it in
// the low bits of the sum. Results below 2^-126 are 0; NaN stays NaN. For x <= 88; ExpAny is for all x.
HWY_INLINE Vec Exp(Vec x) {
  const Float d;
  const hn::RebindToUnsigned<Float> du;
  const Vec rounder = hn::Set(d, 12582912.0f);
  const Vec shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), rounder);
  const Vec n = hn::Sub(shifted, rounder);
  Vec r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  Vec p = hn::Set(d, 0.001381454008155176f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.008368745498891411f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.04166839081386495f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.16666520395783402f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.4999999343191954f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto scale = hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, shifted)), hn::Set(du, 127u << 23));
  const Vec result = hn::Mul(p, hn::BitCast(d, scale));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33654f)), result);
}
// Infinity from 2^127.5 on.
HWY_INLINE Vec ExpAny(Vec x) {
  const Float d;
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.37f)), hn::Set(d, HUGE_VALF), Exp(x));
}

// The first `count` lanes; none where count is not positive.
HWY_INLINE Mask FirstLanes(int64_t count) { return hn::FirstN(Float(), static_cast<size_t>(count < 0 ? 0 : count)); }

HWY_INLINE float SumLanes(Vec v) { return hn::GetLane(hn::SumOfLanes(Float(), v)); }
HWY_INLINE float MaxLanes(Vec v) { return hn::GetLane(hn::MaxOfLanes(Float(), v)); }

// Keeps a vector in a register: GCC would fold the load into each of its uses, and loads, not multiplications, would
// bound the product.
HWY_INLINE void Pin(Vec& v) { asm("" : "+v"(v.raw)); }

// c[m, j] = (add ? c[m, j] : 0), then c = fma(a[m, k], b[k, j], c) for each k in order: one chain per output.
//   a // element (m, k) at a[m * a_row_stride + k * a_k_stride]      b // [depth, cols]      c // [kRows, cols]
// kVectors vectors of columns.
template <int kRows, int kVectors>
HWY_INLINE void ProductTile(int64_t depth, const float* HWY_RESTRICT a, int64_t a_row_stride, int64_t a_k_stride,
                            const float* HWY_RESTRICT b, int64_t b_stride, float* HWY_RESTRICT c, int64_t c_stride,
                            bool add) {
  static_assert(kRows <= 4 && kVectors <= 4);
  const Float d;
  const int64_t lanes = NumLanes();
#define LOCKSTEP_EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3)
#define LOCKSTEP_DECLARE(i)                                                                         \
  Vec acc##i##0 = hn::Zero(d), acc##i##1 = acc##i##0, acc##i##2 = acc##i##0, acc##i##3 = acc##i##0; \
  (void)acc##i##0, (void)acc##i##1, (void)acc##i##2, (void)acc##i##3;
  LOCKSTEP_EACH_ROW(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE
  if (add) {
#define LOCKSTEP_LOAD(i)                                                                \
  if constexpr (kRows > i) {                                                            \
    acc##i##0 = hn::LoadU(d, c + i * c_stride);                                         \
    if constexpr (kVectors > 1) acc##i##1 = hn::LoadU(d, c + i * c_stride + lanes);     \
    if constexpr (kVectors > 2) acc##i##2 = hn::LoadU(d, c + i * c_stride + 2 * lanes); \
    if constexpr (kVectors > 3) acc##i##3 = hn::LoadU(d, c + i * c_stride + 3 * lanes); \
  }
    LOCKSTEP_EACH_ROW(LOCKSTEP_LOAD)
#undef LOCKSTEP_LOAD
  }
  for (int64_t k = 0; k < depth; ++k) {
    const float* HWY_RESTRICT bk = b + k * b_stride;
    Vec b0 = hn::LoadU(d, bk);
    Vec b1 = b0, b2 = b0, b3 = b0;
    if constexpr (kVectors > 1) b1 = hn::LoadU(d, bk + lanes);
    if constexpr (kVectors > 2) b2 = hn::LoadU(d, bk + 2 * lanes);
    if constexpr (kVectors > 3) b3 = hn::LoadU(d, bk + 3 * lanes);
    Pin(b0);
    if constexpr (kVectors > 1) Pin(b1);
    if constexpr (kVectors > 2) Pin(b2);
    if constexpr (kVectors > 3) Pin(b3);
    const float* HWY_RESTRICT ak = a + k * a_k_stride;
#define LOCKSTEP_STEP(i)                                                  \
  if constexpr (kRows > i) {                                              \
    const Vec x = hn::Set(d, ak[i * a_row_stride]);                       \
    acc##i##0 = hn::MulAdd(x, b0, acc##i##0);                             \
    if constexpr (kVectors > 1) acc##i##1 = hn::MulAdd(x, b1, acc##i##1); \
    if constexpr (kVectors > 2) acc##i##2 = hn::MulAdd(x, b2, acc##i##2); \
    if constexpr (kVectors > 3) acc##i##3 = hn::MulAdd(x, b3, acc##i##3); \
  }
    LOCKSTEP_EACH_ROW(LOCKSTEP_STEP)
#undef LOCKSTEP_STEP
  }
#define LOCKSTEP_STORE(i)                                                               \
  if constexpr (kRows > i) {                                                            \
    hn::StoreU(acc##i##0, d, c + i * c_stride);                                         \
    if constexpr (kVectors > 1) hn::StoreU(acc##i##1, d, c + i * c_stride + lanes);     \
    if constexpr (kVectors > 2) hn::StoreU(acc##i##2, d, c + i * c_stride + 2 * lanes); \
    if constexpr (kVectors > 3) hn::StoreU(acc##i##3, d, c + i * c_stride + 3 * lanes); \
  }
  LOCKSTEP_EACH_ROW(LOCKSTEP_STORE)
#undef LOCKSTEP_STORE
#undef LOCKSTEP_EACH_ROW
}

// Four rows by four vectors fit 32 registers; with 16 registers two rows do.
constexpr int kProductRows = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

template <int kVectors>
HWY_INLINE void ProductRows(int64_t rows, int64_t depth, const float* a, int64_t a_row_stride, int64_t a_k_stride,
                            const float* b, int64_t b_stride, float* c, int64_t c_stride, bool add) {
  int64_t m = 0;
  for (; m + kProductRows <= rows; m += kProductRows) {
    ProductTile<kProductRows, kVectors>(depth, a + m * a_row_stride, a_row_stride, a_k_stride, b, b_stride,
                                        c + m * c_stride, c_stride, add);
  }
  const int64_t rest = rows - m;
  a += m * a_row_stride;
  c += m * c_stride;
  if (rest == 1) ProductTile<1, kVectors>(depth, a, a_row_stride, a_k_stride, b, b_stride, c, c_stride, add);
  if (rest == 2) ProductTile<2, kVectors>(depth, a, a_row_stride, a_k_stride, b, b_stride, c, c_stride, add);
  if (rest == 3) ProductTile<3, kVectors>(depth, a, a_row_stride, a_k_stride, b, b_stride, c, c_stride, add);
}

// A product of any number of rows; cols is a multiple of 16.
HWY_INLINE void SmallProduct(int64_t rows, int64_t depth, int64_t cols, const float* a, int64_t a_row_stride,
                             int64_t a_k_stride, const float* b, int64_t b_stride, float* c, int64_t c_stride,
                             bool add) {
  const int64_t lanes = NumLanes();
  int64_t j = 0;
  for (; j + 4 * lanes <= cols; j += 4 * lanes) {
    ProductRows<4>(rows, depth, a, a_row_stride, a_k_stride, b + j, b_stride, c + j, c_stride, add);
  }
  const int64_t rest = (cols - j) / lanes;
  if (rest == 1) ProductRows<1>(rows, depth, a, a_row_stride, a_k_stride, b + j, b_stride, c + j, c_stride, add);
  if (rest == 2) ProductRows<2>(rows, depth, a, a_row_stride, a_k_stride, b + j, b_stride, c + j, c_stride, add);
  if (rest == 3) ProductRows<3>(rows, depth, a, a_row_stride, a_k_stride, b + j, b_stride, c + j, c_stride, add);
}

}  // namespace lockstep::model::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_MODEL_KERNELS_CPU_SIMD_INL_H_
