// Scattered key and value rows: copies as float32 tiles, and products straight from where they lie. Included once per
// target by attention.cc.
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

// The rows of one block of 64 path positions. Those behind `count` repeat the last, so that whole vectors of rows can
// be read.
template <typename T>
struct ScatteredRows {
  const T* row[64];
  int64_t count;  // 1..64
  int64_t dim;
  ScatteredRows(const T* base, int64_t stride, const int32_t* rows, int64_t count, int64_t dim)
      : count(count), dim(dim) {
    for (int64_t i = 0; i < count; ++i) row[i] = base + rows[i] * stride;
    for (int64_t i = count; i < (count + 15) / 16 * 16; ++i) row[i] = row[count - 1];
  }
};

// to // [count, padded] f32
template <typename T>
HWY_INLINE void Gather(const ScatteredRows<T>& from, int64_t padded, float* HWY_RESTRICT to) {
  const int64_t lanes = NumLanes();
  for (int64_t i = 0; i < from.count; ++i, to += padded) {
    const T* row = from.row[i];
    int64_t c = 0;
    for (; c + 4 * lanes <= from.dim; c += 4 * lanes) {
      StoreFloats(LoadFloats(row + c), to + c);
      StoreFloats(LoadFloats(row + c + lanes), to + c + lanes);
      StoreFloats(LoadFloats(row + c + 2 * lanes), to + c + 2 * lanes);
      StoreFloats(LoadFloats(row + c + 3 * lanes), to + c + 3 * lanes);
    }
    for (; c + lanes <= from.dim; c += lanes) StoreFloats(LoadFloats(row + c), to + c);
    for (; c < from.dim; ++c) to[c] = ToFloat(row[c]);
  }
}

#if HWY_TARGET == HWY_SCALAR

constexpr bool kHasDirectScores = false;

// to // [dim, 64] f32; columns behind `count` are undefined.
template <typename T>
HWY_INLINE void GatherTransposed(const ScatteredRows<T>& from, float* HWY_RESTRICT to) {
  for (int64_t i = 0; i < from.count; ++i) {
    for (int64_t c = 0; c < from.dim; ++c) to[c * 64 + i] = ToFloat(from.row[i][c]);
  }
}
template <int kRows, typename T>
HWY_INLINE void DirectScores(const ScatteredRows<T>&, const float*, int64_t, float*) {}

#else

constexpr bool kHasDirectScores = HWY_TARGET <= HWY_AVX3;

using Words = hn::RebindToUnsigned<Float>;
using WordVec = hn::Vec<Words>;

// 256 bits of row[0] and, where a vector has 512, of row[8].
template <typename T>
HWY_INLINE WordVec LoadWords(const T* const* row, int64_t column) {
  const hn::CappedTag<uint32_t, 8> half;
  const auto low = hn::LoadU(half, reinterpret_cast<const uint32_t*>(row[0] + column));
#if HWY_TARGET <= HWY_AVX3
  return hn::Combine(Words(), hn::LoadU(half, reinterpret_cast<const uint32_t*>(row[8] + column)), low);
#else
  return low;
#endif
}

// Words 0, 1, 2, 3 of the 128-bit blocks of four rows, joined to four-row columns.
struct FourColumns {
  WordVec v0, v1, v2, v3;
  HWY_INLINE FourColumns(WordVec r0, WordVec r1, WordVec r2, WordVec r3) {
    const Words d;
    const hn::Repartition<uint64_t, Words> d64;
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    v0 = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
    v1 = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
    v2 = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
    v3 = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
  }
};

// Eight words of as many rows as a vector has lanes, transposed: word(i) holds word i of each row.
struct EightColumns {
  WordVec v0, v1, v2, v3, v4, v5, v6, v7;
  template <typename T>
  HWY_INLINE EightColumns(const T* const* row, int64_t column) {
    const FourColumns low(LoadWords(row, column), LoadWords(row + 1, column), LoadWords(row + 2, column),
                          LoadWords(row + 3, column));
    const FourColumns high(LoadWords(row + 4, column), LoadWords(row + 5, column), LoadWords(row + 6, column),
                           LoadWords(row + 7, column));
    // Even blocks belong to words 0..3, odd ones to words 4..7.
    v0 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high.v0), low.v0);
    v1 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high.v1), low.v1);
    v2 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high.v2), low.v2);
    v3 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high.v3), low.v3);
    v4 = hn::OddEvenBlocks(high.v0, hn::SwapAdjacentBlocks(low.v0));
    v5 = hn::OddEvenBlocks(high.v1, hn::SwapAdjacentBlocks(low.v1));
    v6 = hn::OddEvenBlocks(high.v2, hn::SwapAdjacentBlocks(low.v2));
    v7 = hn::OddEvenBlocks(high.v3, hn::SwapAdjacentBlocks(low.v3));
  }
  // Calls use(column, values) for each column of the words, in order. Bf16 words hold two, the first in the lower half.
  template <typename T, typename Use>
  HWY_INLINE void ForEach(const T* type, Use& use) const {
    UseWord(v0, 0, type, use);
    UseWord(v1, 1, type, use);
    UseWord(v2, 2, type, use);
    UseWord(v3, 3, type, use);
    UseWord(v4, 4, type, use);
    UseWord(v5, 5, type, use);
    UseWord(v6, 6, type, use);
    UseWord(v7, 7, type, use);
  }

 private:
  template <typename Use>
  static HWY_INLINE void UseWord(WordVec v, int64_t i, const float*, Use& use) {
    use(i, hn::BitCast(Float(), v));
  }
  template <typename Use>
  static HWY_INLINE void UseWord(WordVec v, int64_t i, const Bf16*, Use& use) {
    use(2 * i, hn::BitCast(Float(), hn::ShiftLeft<16>(v)));
    use(2 * i + 1, hn::BitCast(Float(), hn::And(v, hn::Set(Words(), 0xffff0000u))));
  }
};

struct StoreColumn {
  float* to;
  HWY_INLINE void operator()(int64_t column, Vec values) const { hn::StoreU(values, Float(), to + column * 64); }
};

// to // [dim, 64] f32; columns behind `count` are undefined.
template <typename T>
HWY_INLINE void GatherTransposed(const ScatteredRows<T>& from, float* HWY_RESTRICT to) {
  constexpr int64_t kStep = 32 / sizeof(T);
  const int64_t lanes = NumLanes();
  const T* type = nullptr;
  for (int64_t i = 0; i < from.count; i += lanes) {
    int64_t c = 0;
    for (; c + kStep <= from.dim; c += kStep) {
      StoreColumn store{to + c * 64 + i};
      EightColumns(from.row + i, c).ForEach(type, store);
    }
    for (; c < from.dim; ++c) {
      for (int64_t j = i; j < i + lanes; ++j) to[c * 64 + j] = ToFloat(from.row[j][c]);
    }
  }
}

// Accumulators of a few query rows.
template <int kRows>
struct RowSums {
  Vec sum;
  RowSums<kRows - 1> rest;
  HWY_INLINE RowSums() : sum(hn::Zero(Float())) {}
  HWY_INLINE void Add(const float* query, int64_t stride, Vec values) {
    sum = hn::MulAdd(hn::Set(Float(), *query), values, sum);
    rest.Add(query + stride, stride, values);
  }
  HWY_INLINE void Store(float* to, int64_t stride) const {
    hn::StoreU(sum, Float(), to);
    rest.Store(to + stride, stride);
  }
};
template <>
struct RowSums<0> {
  HWY_INLINE RowSums() {}
  HWY_INLINE void Add(const float*, int64_t, Vec) {}
  HWY_INLINE void Store(float*, int64_t) const {}
};

// The same pointer, but the compiler does not know: it would keep the broadcast elements of the queries for the next
// use, far more than there are registers, instead of loading them again within the multiplications.
HWY_INLINE const float* Unknown(const float* pointer) {
  asm volatile("" : "+r"(pointer));
  return pointer;
}

template <int kRows>
struct AddColumn {
  RowSums<kRows>& sums;
  const float* query;
  int64_t stride;
  HWY_INLINE void operator()(int64_t column, Vec values) { sums.Add(query + column, stride, values); }
};

// scores[r, key] = query r . key, the same chains as a product with the transposed copy, but no copy is made: for so
// few rows it would not pay. dim is a multiple of 16.    queries // [kRows, stride]     scores // [kRows, 64]
template <int kRows, typename T>
HWY_INLINE void DirectScores(const ScatteredRows<T>& keys, const float* HWY_RESTRICT queries, int64_t stride,
                             float* HWY_RESTRICT scores) {
  constexpr int64_t kStep = 32 / sizeof(T);
  const int64_t lanes = NumLanes();
  const T* type = nullptr;
  // Two vectors of keys at a time: their chains hide each other's latency.
  for (int64_t i = 0; i < keys.count; i += 2 * lanes) {
    const bool two = i + lanes < keys.count;
    RowSums<kRows> first, second;
    for (int64_t c = 0; c < keys.dim; c += kStep) {
      AddColumn<kRows> add_first{first, Unknown(queries + c), stride};
      EightColumns(keys.row + i, c).ForEach(type, add_first);
      if (!two) continue;
      AddColumn<kRows> add_second{second, Unknown(queries + c), stride};
      EightColumns(keys.row + i + lanes, c).ForEach(type, add_second);
    }
    first.Store(scores + i, 64);
    if (two) second.Store(scores + i + lanes, 64);
  }
}

#endif  // HWY_SCALAR

// Accumulators of a few rows by four vectors of columns.
template <int kRows>
struct RowOutputs {
  Vec v0, v1, v2, v3;
  RowOutputs<kRows - 1> rest;
  HWY_INLINE void Load(const float* from, int64_t stride, bool add) {
    const int64_t lanes = NumLanes();
    v0 = add ? hn::LoadU(Float(), from) : hn::Zero(Float());
    v1 = add ? hn::LoadU(Float(), from + lanes) : hn::Zero(Float());
    v2 = add ? hn::LoadU(Float(), from + 2 * lanes) : hn::Zero(Float());
    v3 = add ? hn::LoadU(Float(), from + 3 * lanes) : hn::Zero(Float());
    rest.Load(from + stride, stride, add);
  }
  HWY_INLINE void Add(const float* weight, Vec b0, Vec b1, Vec b2, Vec b3) {
    const Vec w = hn::Set(Float(), *weight);
    v0 = hn::MulAdd(w, b0, v0);
    v1 = hn::MulAdd(w, b1, v1);
    v2 = hn::MulAdd(w, b2, v2);
    v3 = hn::MulAdd(w, b3, v3);
    rest.Add(weight + 64, b0, b1, b2, b3);
  }
  HWY_INLINE void Store(float* to, int64_t stride) const {
    const int64_t lanes = NumLanes();
    hn::StoreU(v0, Float(), to);
    hn::StoreU(v1, Float(), to + lanes);
    hn::StoreU(v2, Float(), to + 2 * lanes);
    hn::StoreU(v3, Float(), to + 3 * lanes);
    rest.Store(to + stride, stride);
  }
};
template <>
struct RowOutputs<0> {
  HWY_INLINE void Load(const float*, int64_t, bool) {}
  HWY_INLINE void Add(const float*, Vec, Vec, Vec, Vec) {}
  HWY_INLINE void Store(float*, int64_t) const {}
};

// output[r] (+)= sum over the keys of weights[r, key] * value(key), without a copy of the values. dim is a multiple of
// four vectors.    weights // [kRows, 64]     output // [kRows, stride]
template <int kRows, typename T>
HWY_INLINE void DirectOutputs(const ScatteredRows<T>& values, const float* HWY_RESTRICT weights, bool add,
                              float* HWY_RESTRICT output, int64_t stride) {
  const int64_t lanes = NumLanes();
  for (int64_t c = 0; c < values.dim; c += 4 * lanes) {
    RowOutputs<kRows> sums;
    sums.Load(output + c, stride, add);
    for (int64_t i = 0; i < values.count; ++i) {
      const T* row = values.row[i] + c;
      Vec b0 = LoadFloats(row), b1 = LoadFloats(row + lanes);
      Vec b2 = LoadFloats(row + 2 * lanes), b3 = LoadFloats(row + 3 * lanes);
      Pin(b0), Pin(b1), Pin(b2), Pin(b3);
      sums.Add(weights + i, b0, b1, b2, b3);
    }
    sums.Store(output + c, stride);
  }
}

}  // namespace lockstep::model::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_MODEL_KERNELS_CPU_GATHER_INL_H_
