// Copies of scattered key and value rows as float32 tiles. Included once per target by attention.cc.
#if defined(LOCKSTEP_MODEL_KERNELS_CPU_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_MODEL_KERNELS_CPU_GATHER_INL_H_
#undef LOCKSTEP_MODEL_KERNELS_CPU_GATHER_INL_H_
#else
#define LOCKSTEP_MODEL_KERNELS_CPU_GATHER_INL_H_
#endif

#include <hwy/highway.h>

#include "model/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::model::internal::HWY_NAMESPACE {

// The rows of one block: row i is `dim` elements at base + rows[i] * stride.
template <typename T>
struct ScatteredRows {
  const T* base;
  int64_t stride;
  const int32_t* rows;
  int64_t count;  // 1..64
  int64_t dim;
  const T* row(int64_t i) const { return base + rows[i] * stride; }
};

// to // [count, padded] f32
template <typename T>
HWY_INLINE void Gather(const ScatteredRows<T>& from, int64_t padded, float* HWY_RESTRICT to) {
  const int64_t lanes = NumLanes();
  for (int64_t i = 0; i < from.count; ++i, to += padded) {
    const T* row = from.row(i);
    int64_t c = 0;
    for (; c + lanes <= from.dim; c += lanes) StoreFloats(LoadFloats(row + c), to + c);
    for (; c < from.dim; ++c) to[c] = ToFloat(row[c]);
  }
}

#if HWY_TARGET == HWY_SCALAR

// to // [dim, 64] f32; columns behind `count` are undefined.
template <typename T>
HWY_INLINE void GatherTransposed(const ScatteredRows<T>& from, float* HWY_RESTRICT to) {
  for (int64_t i = 0; i < from.count; ++i) {
    for (int64_t c = 0; c < from.dim; ++c) to[c * 64 + i] = ToFloat(from.row(i)[c]);
  }
}

#else

using Words = hn::RebindToUnsigned<Float>;
using WordVec = hn::Vec<Words>;

// 128 bits of each of the rows p[0], p[4], p[8], ...: one block of the vector each.
HWY_INLINE WordVec LoadBlocks(const uint32_t* const* p) {
#if HWY_TARGET <= HWY_AVX2
  const hn::FixedTag<uint32_t, 4> quarter;
  const hn::FixedTag<uint32_t, 8> half;
  const auto low = hn::Combine(half, hn::LoadU(quarter, p[4]), hn::LoadU(quarter, p[0]));
#if HWY_TARGET <= HWY_AVX3
  const auto high = hn::Combine(half, hn::LoadU(quarter, p[12]), hn::LoadU(quarter, p[8]));
  return hn::Combine(Words(), high, low);
#else
  return low;
#endif
#else
  return hn::LoadU(Words(), p[0]);
#endif
}

HWY_INLINE void StoreTransposed(WordVec v, float* to, const float*) {
  hn::StoreU(hn::BitCast(Float(), v), Float(), to);
}
// A word holds the bf16 of two neighbouring columns, the first in its lower half.
HWY_INLINE void StoreTransposed(WordVec v, float* to, const Bf16*) {
  hn::StoreU(hn::BitCast(Float(), hn::ShiftLeft<16>(v)), Float(), to);
  hn::StoreU(hn::BitCast(Float(), hn::And(v, hn::Set(Words(), 0xffff0000u))), Float(), to + 64);
}

// to // [dim, 64] f32; columns behind `count` are undefined. As many rows as a vector has lanes at a time: 4 x 4
// transposes within its 128-bit blocks, of float32 or of pairs of bf16.
template <typename T>
HWY_INLINE void GatherTransposed(const ScatteredRows<T>& from, float* HWY_RESTRICT to) {
  constexpr int64_t kPerWord = 4 / sizeof(T);  // elements
  constexpr int64_t kStep = 4 * kPerWord;      // columns of a 4 x 4 transpose
  const Words d;
  const hn::Repartition<uint64_t, Words> d64;
  const int64_t lanes = NumLanes();
  for (int64_t i = 0; i < from.count; i += lanes) {
    const uint32_t* p[16];
    // Lanes behind the last row repeat it.
    for (int64_t j = 0; j < lanes; ++j) {
      p[j] = reinterpret_cast<const uint32_t*>(from.row(i + j < from.count ? i + j : from.count - 1));
    }
    int64_t c = 0;
    for (; c + kStep <= from.dim; c += kStep) {
      const WordVec r0 = LoadBlocks(p), r1 = LoadBlocks(p + 1), r2 = LoadBlocks(p + 2), r3 = LoadBlocks(p + 3);
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
      float* column = to + c * 64 + i;
      const T* type = nullptr;
      StoreTransposed(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), column, type);
      StoreTransposed(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), column + 64 * kPerWord, type);
      StoreTransposed(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), column + 128 * kPerWord, type);
      StoreTransposed(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), column + 192 * kPerWord, type);
      for (int64_t j = 0; j < lanes; ++j) p[j] += 4;
    }
    for (; c < from.dim; ++c) {
      for (int64_t j = i; j < i + lanes; ++j) to[c * 64 + j] = j < from.count ? ToFloat(from.row(j)[c]) : 0.0f;
    }
  }
}

#endif  // HWY_SCALAR

}  // namespace lockstep::model::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_MODEL_KERNELS_CPU_GATHER_INL_H_
