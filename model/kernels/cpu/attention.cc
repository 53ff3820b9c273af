#include "model/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/kernels/cpu/attention.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "model/kernels/cpu/simd-inl.h"

#ifndef LOCKSTEP_MODEL_KERNELS_CPU_ATTENTION_ONCE_
#define LOCKSTEP_MODEL_KERNELS_CPU_ATTENTION_ONCE_
namespace lockstep::model::internal {

// A tile holds at most this many (query, head of the group) rows, or the group of one query where that is larger.
inline constexpr int64_t kTargetTileRows = 96;
inline int64_t PaddedHeadDim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Float copies of what a tile works on; grows to the largest shape seen by the thread and stays.
class AttentionScratch {
 public:
  void Reserve(int64_t rows, int64_t padded_dim) {
    if (rows <= rows_ && padded_dim <= dim_) return;
    rows_ = std::max(rows, rows_);
    dim_ = std::max(padded_dim, dim_);
    const auto floats = [](int64_t count) { return Buffer::Zeroed(static_cast<size_t>(count) * sizeof(float)); };
    queries = floats(rows_ * dim_);
    output = floats(rows_ * dim_);
    span_output = floats(rows_ * dim_);
    d_output = floats(rows_ * dim_);
    d_query = floats(rows_ * dim_);
    scores = floats(rows_ * kAttentionBlock);
    d_scores = floats(rows_ * kAttentionBlock);
    keys = floats(kAttentionBlock * dim_);
    keys_transposed = floats(kAttentionBlock * dim_);
    values = floats(kAttentionBlock * dim_);
    values_transposed = floats(kAttentionBlock * dim_);
    d_keys = floats(kAttentionBlock * dim_);
    d_values = floats(kAttentionBlock * dim_);
    row_state = floats(8 * rows_);
    zeros = floats(kMaxHeadDim);
  }
  Buffer queries, output, span_output, d_output, d_query;               // [rows, dim]
  Buffer scores, d_scores;                                              // [rows, 64]
  Buffer keys, values, d_keys, d_values;                                // [64, dim]
  Buffer keys_transposed, values_transposed;                            // [dim, 64]
  Buffer row_state;                                                     // a few floats per row
  Buffer zeros;                                                         // stands for keys that are not there
  int64_t rows() const { return rows_; }

 private:
  int64_t rows_ = 0, dim_ = 0;
};

inline AttentionScratch& ThreadAttentionScratch() {
  static thread_local AttentionScratch scratch;
  return scratch;
}

}  // namespace lockstep::model::internal
#endif  // LOCKSTEP_MODEL_KERNELS_CPU_ATTENTION_ONCE_

HWY_BEFORE_NAMESPACE();
namespace lockstep::model::internal::HWY_NAMESPACE {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// One tile of queries with everything that both passes share: row r of the tile is query r / group, head r % group.
template <typename T>
struct Tile {
  const AttentionShape& shape;
  const QueryTile& queries;
  int64_t kv_head, group, dim, padded, rows;
  float scale;
  AttentionScratch& scratch;

  Tile(const AttentionShape& shape, int64_t kv_head, const QueryTile& queries)
      : shape(shape),
        queries(queries),
        kv_head(kv_head),
        group(shape.group()),
        dim(shape.head_dim),
        padded(PaddedHeadDim(dim)),
        rows(queries.count * group),
        scale(1.0f / std::sqrt(static_cast<float>(dim))),
        scratch(ThreadAttentionScratch()) {
    scratch.Reserve(rows, padded);
  }
  int64_t depth_end() const { return queries.first_depth + queries.count; }
  int64_t num_blocks() const { return (depth_end() + kAttentionBlock - 1) / kAttentionBlock; }
  // Keys of the block that row r sees: a prefix of it.
  int64_t Visible(int64_t r, int64_t block) const {
    const int64_t seen = queries.first_depth + r / group + 1 - block * kAttentionBlock;
    return std::clamp<int64_t>(seen, 0, kAttentionBlock);
  }
  // First row that sees anything of the block.
  int64_t FirstRow(int64_t block) const {
    return std::clamp<int64_t>(block * kAttentionBlock - queries.first_depth, 0, queries.count) * group;
  }
  template <typename Element>
  Element* Head(Matrix<Element> m, int64_t r) const {
    return m.row(queries.q_begin + r / group) + (kv_head * group + r % group) * dim;
  }
};

template <typename T>
HWY_INLINE void CopyToFloat(const T* from, int64_t count, float* to) {
  ForVectors(count, [&](int64_t i, int64_t n) HWY_ATTR { StoreUpTo(LoadUpTo(from + i, n), to + i, n); });
}

template <typename T, typename Element>
HWY_INLINE void GatherRows(const Tile<T>& tile, Matrix<Element> from, float* to) {
  for (int64_t r = 0; r < tile.rows; ++r) CopyToFloat(tile.Head(from, r), tile.dim, to + r * tile.padded);
}

template <typename T>
HWY_INLINE int64_t BlockCount(const Tile<T>& tile, int64_t block) {
  return std::min(kAttentionBlock, tile.depth_end() - block * kAttentionBlock);
}

// Rows of one block as float32.    to // [64, padded]
template <typename T>
HWY_INLINE void GatherBlock(const Tile<T>& tile, int64_t block, Matrix<const T> m, float* to) {
  const int32_t* rows = tile.queries.key_rows + block * kAttentionBlock;
  const int64_t count = BlockCount(tile, block);
  for (int64_t j = 0; j < count; ++j) CopyToFloat(m.row(rows[j]) + tile.kv_head * tile.dim, tile.dim, to + j * tile.padded);
}

// The same, transposed.    to // [padded, 64]; columns behind the last key are zero up to a multiple of four, else left as they were.
// Four rows at a time: 4 x 4 transposes within the 128-bit blocks of the vectors.
template <typename T>
HWY_INLINE void GatherTransposed(const Tile<T>& tile, int64_t block, Matrix<const T> m, float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t j = 0; j < BlockCount(tile, block); ++j) {
    const T* from = m.row(tile.queries.key_rows[block * kAttentionBlock + j]) + tile.kv_head * tile.dim;
    for (int64_t c = 0; c < tile.dim; ++c) to[c * kAttentionBlock + j] = ToFloat(from[c]);
  }
#else
  const Float d;
  const int64_t lanes = NumLanes();
  const int32_t* rows = tile.queries.key_rows + block * kAttentionBlock;
  const int64_t count = BlockCount(tile, block);
  const T* zero = reinterpret_cast<const T*>(tile.scratch.zeros.data());
  alignas(64) float lane_blocks[4][16];
  for (int64_t j = 0; j < count; j += 4) {
    const T* from[4];
    for (int64_t i = 0; i < 4; ++i) from[i] = j + i < count ? m.row(rows[j + i]) + tile.kv_head * tile.dim : zero;
    for (int64_t c = 0; c < tile.dim; c += lanes) {
      const int64_t n = std::min(lanes, tile.dim - c);
      const Vec r0 = LoadUpTo(from[0] + c, n), r1 = LoadUpTo(from[1] + c, n);
      const Vec r2 = LoadUpTo(from[2] + c, n), r3 = LoadUpTo(from[3] + c, n);
      const Vec even_low = hn::InterleaveLower(d, r0, r2), odd_low = hn::InterleaveLower(d, r1, r3);
      const Vec even_high = hn::InterleaveUpper(d, r0, r2), odd_high = hn::InterleaveUpper(d, r1, r3);
      hn::Store(hn::InterleaveLower(d, even_low, odd_low), d, lane_blocks[0]);
      hn::Store(hn::InterleaveUpper(d, even_low, odd_low), d, lane_blocks[1]);
      hn::Store(hn::InterleaveLower(d, even_high, odd_high), d, lane_blocks[2]);
      hn::Store(hn::InterleaveUpper(d, even_high, odd_high), d, lane_blocks[3]);
      for (int64_t b = 0; b < lanes; b += 4) {
        for (int64_t i = 0; i < 4; ++i) std::memcpy(to + (c + b + i) * kAttentionBlock + j, &lane_blocks[i][b], 4 * sizeof(float));
      }
    }
  }
#endif
}

// Softmax state of the rows: running maximum and sum, of the span in hand and of the spans before it.
struct RowState {
  float* max;
  float* sum;
  float* span_max;
  float* span_sum;
  RowState(AttentionScratch& scratch, int64_t rows) {
    max = scratch.row_state.as<float>();
    sum = max + rows;
    span_max = sum + rows;
    span_sum = span_max + rows;
  }
};

HWY_INLINE void ScaleRow(float* row, int64_t count, float factor) {
  const Float d;
  const Vec f = hn::Set(d, factor);
  for (int64_t i = 0; i < count; i += NumLanes()) hn::StoreU(hn::Mul(hn::LoadU(d, row + i), f), d, row + i);
}

HWY_INLINE float ExpOne(float x) { return hn::GetLane(Exp(hn::Set(Float(), x))); }

// Turns the scores of one row into weights exp(s - max) over its visible keys and folds them into the row's state.
// Returns the factor that the output so far must be scaled with.
HWY_INLINE float SoftmaxRow(float* scores, int64_t visible, float scale, float& max, float& sum) {
  const Float d;
  const Vec minus_infinity = hn::Set(d, kMinusInfinity);
  const Vec factor = hn::Set(d, scale);
  Vec largest = minus_infinity;
  for (int64_t j = 0; j < kAttentionBlock; j += NumLanes()) {
    const Vec scaled = hn::Mul(hn::LoadU(d, scores + j), factor);
    const Vec masked = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(visible - j, 0))), scaled, minus_infinity);
    largest = hn::Max(largest, masked);
    hn::StoreU(masked, d, scores + j);
  }
  const float new_max = std::max(max, MaxLanes(largest));
  const Vec shift = hn::Set(d, new_max);
  Vec total = hn::Zero(d);
  for (int64_t j = 0; j < kAttentionBlock; j += NumLanes()) {
    const Vec weight = Exp(hn::Sub(hn::LoadU(d, scores + j), shift));
    const Vec kept = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(visible - j, 0))), weight);
    total = hn::Add(total, kept);
    hn::StoreU(kept, d, scores + j);
  }
  const float correction = max == kMinusInfinity ? 0.0f : ExpOne(max - new_max);
  sum = sum * correction + SumLanes(total);
  max = new_max;
  return correction;
}

// output += weights * values over the visible keys of each row; rows that see equally much go together.
template <typename T>
HWY_INLINE void AddValues(const Tile<T>& tile, int64_t block, int64_t first_row, const float* weights, const float* values,
                          float* output) {
  int64_t r = first_row;
  while (r < tile.rows) {
    const int64_t visible = tile.Visible(r, block);
    int64_t end = r + 1;
    while (end < tile.rows && tile.Visible(end, block) == visible) ++end;
    SmallProduct(end - r, visible, tile.padded, weights + r * kAttentionBlock, kAttentionBlock, 1, values, tile.padded,
                 output + r * tile.padded, tile.padded, true);
    r = end;
  }
}

// Merges the finished span of a row into the spans before it.
HWY_INLINE void MergeSpan(RowState& state, int64_t r, float* output, float* span_output, int64_t padded) {
  const Float d;
  if (state.span_max[r] == kMinusInfinity && state.span_sum[r] == 0) return;  // saw nothing of the span
  if (state.sum[r] == 0 && state.max[r] == kMinusInfinity) {
    for (int64_t i = 0; i < padded; i += NumLanes()) hn::StoreU(hn::LoadU(d, span_output + i), d, output + i);
    state.max[r] = state.span_max[r];
    state.sum[r] = state.span_sum[r];
    return;
  }
  const float max = std::max(state.max[r], state.span_max[r]);
  const float before = ExpOne(state.max[r] - max);
  const float now = ExpOne(state.span_max[r] - max);
  const Vec vb = hn::Set(d, before), vn = hn::Set(d, now);
  for (int64_t i = 0; i < padded; i += NumLanes()) {
    const Vec merged = hn::MulAdd(hn::LoadU(d, span_output + i), vn, hn::Mul(hn::LoadU(d, output + i), vb));
    hn::StoreU(merged, d, output + i);
  }
  state.sum[r] = state.sum[r] * before + state.span_sum[r] * now;
  state.max[r] = max;
}

template <typename T>
void ForwardTile(const AttentionShape& shape, int64_t kv_head, const QueryTile& queries, Matrix<const T> q, Matrix<const T> k,
                 Matrix<const T> v, Matrix<T> out, Matrix<float> lse) {
  Tile<T> tile(shape, kv_head, queries);
  AttentionScratch& scratch = tile.scratch;
  float* qs = scratch.queries.as<float>();
  float* output = scratch.output.as<float>();
  float* span_output = scratch.span_output.as<float>();
  float* scores = scratch.scores.as<float>();
  float* keys_transposed = scratch.keys_transposed.as<float>();
  float* values = scratch.values.as<float>();
  const int64_t padded = tile.padded;
  GatherRows(tile, q, qs);
  RowState state(scratch, scratch.rows());
  std::fill(state.max, state.max + tile.rows, kMinusInfinity);
  std::fill(state.sum, state.sum + tile.rows, 0.0f);

  constexpr int64_t kBlocksOfSpan = kAttentionSpan / kAttentionBlock;
  for (int64_t span = 0; span < tile.num_blocks(); span += kBlocksOfSpan) {
    std::fill(state.span_max, state.span_max + tile.rows, kMinusInfinity);
    std::fill(state.span_sum, state.span_sum + tile.rows, 0.0f);
    std::fill(span_output, span_output + tile.rows * padded, 0.0f);
    const int64_t end = std::min(span + kBlocksOfSpan, tile.num_blocks());
    for (int64_t block = span; block < end; ++block) {
      GatherTransposed(tile, block, k, keys_transposed);
      GatherBlock(tile, block, v, values);
      const int64_t first = tile.FirstRow(block);
      SmallProduct(tile.rows - first, tile.dim, kAttentionBlock, qs + first * padded, padded, 1, keys_transposed,
                   kAttentionBlock, scores + first * kAttentionBlock, kAttentionBlock, false);
      for (int64_t r = first; r < tile.rows; ++r) {
        const float correction = SoftmaxRow(scores + r * kAttentionBlock, tile.Visible(r, block), tile.scale, state.span_max[r],
                                            state.span_sum[r]);
        ScaleRow(span_output + r * padded, padded, correction);
      }
      AddValues(tile, block, first, scores, values, span_output);
    }
    for (int64_t r = 0; r < tile.rows; ++r) MergeSpan(state, r, output + r * padded, span_output + r * padded, padded);
  }
  for (int64_t r = 0; r < tile.rows; ++r) {
    ScaleRow(output + r * padded, padded, 1.0f / state.sum[r]);
    T* to = tile.Head(out, r);
    ForVectors(tile.dim, [&](int64_t i, int64_t n) HWY_ATTR { StoreUpTo(LoadUpTo(output + r * padded + i, n), to + i, n); });
    if (lse.data != nullptr) {
      lse.row(queries.q_begin + r / tile.group)[kv_head * tile.group + r % tile.group] = state.max[r] + std::log(state.sum[r]);
    }
  }
}

// Weights p = exp(s * scale - lse) and d_scores = p * (dp - delta) * scale of one row, zero where a key is not visible.
HWY_INLINE void BackwardRow(float* scores, float* d_scores, int64_t visible, float scale, float lse, float delta) {
  const Float d;
  const Vec factor = hn::Set(d, scale), shift = hn::Set(d, lse), offset = hn::Set(d, delta);
  for (int64_t j = 0; j < kAttentionBlock; j += NumLanes()) {
    const Mask seen = hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(visible - j, 0)));
    const Vec weight = hn::IfThenElseZero(seen, Exp(hn::Sub(hn::Mul(hn::LoadU(d, scores + j), factor), shift)));
    const Vec inner = hn::Mul(hn::Sub(hn::LoadU(d, d_scores + j), offset), factor);
    hn::StoreU(weight, d, scores + j);
    hn::StoreU(hn::IfThenElseZero(seen, hn::Mul(weight, inner)), d, d_scores + j);
  }
}

HWY_INLINE void ScatterAdd(const float* from, int64_t count, int64_t padded, int64_t dim, const int32_t* rows, int64_t column,
                           Matrix<float> to) {
  for (int64_t j = 0; j < count; ++j) {
    float* target = to.row(rows[j]) + column;
    const float* source = from + j * padded;
    ForVectors(dim, [&](int64_t i, int64_t n) HWY_ATTR {
      StoreUpTo(hn::Add(LoadUpTo(target + i, n), LoadUpTo(source + i, n)), target + i, n);
    });
  }
}

template <typename T>
void BackwardTile(const AttentionShape& shape, int64_t kv_head, const QueryTile& queries, Matrix<const T> q, Matrix<const T> k,
                  Matrix<const T> v, Matrix<const T> out, Matrix<const float> lse, Matrix<const float> d_out, Matrix<float> dq,
                  Matrix<float> dk, Matrix<float> dv) {
  Tile<T> tile(shape, kv_head, queries);
  AttentionScratch& scratch = tile.scratch;
  const int64_t padded = tile.padded;
  float* qs = scratch.queries.as<float>();
  float* outputs = scratch.output.as<float>();
  float* d_outputs = scratch.d_output.as<float>();
  float* d_query = scratch.d_query.as<float>();
  float* scores = scratch.scores.as<float>();
  float* d_scores = scratch.d_scores.as<float>();
  float* keys = scratch.keys.as<float>();
  float* keys_transposed = scratch.keys_transposed.as<float>();
  float* values_transposed = scratch.values_transposed.as<float>();
  float* d_keys = scratch.d_keys.as<float>();
  float* d_values = scratch.d_values.as<float>();
  float* delta = scratch.row_state.as<float>();
  GatherRows(tile, q, qs);
  GatherRows(tile, out, outputs);
  GatherRows(tile, d_out, d_outputs);
  std::fill(d_query, d_query + tile.rows * padded, 0.0f);
  for (int64_t r = 0; r < tile.rows; ++r) {
    const Float d;
    Vec sum = hn::Zero(d);
    ForVectors(tile.dim, [&](int64_t i, int64_t n) HWY_ATTR {
      sum = hn::MulAdd(LoadUpTo(outputs + r * padded + i, n), LoadUpTo(d_outputs + r * padded + i, n), sum);
    });
    delta[r] = SumLanes(sum);
  }
  for (int64_t block = 0; block < tile.num_blocks(); ++block) {
    const int64_t count = BlockCount(tile, block);
    GatherBlock(tile, block, k, keys);
    GatherTransposed(tile, block, k, keys_transposed);
    GatherTransposed(tile, block, v, values_transposed);
    const int64_t first = tile.FirstRow(block);
    const int64_t rows = tile.rows - first;
    float* p = scores + first * kAttentionBlock;
    float* ds = d_scores + first * kAttentionBlock;
    SmallProduct(rows, tile.dim, kAttentionBlock, qs + first * padded, padded, 1, keys_transposed, kAttentionBlock, p,
                 kAttentionBlock, false);
    SmallProduct(rows, tile.dim, kAttentionBlock, d_outputs + first * padded, padded, 1, values_transposed, kAttentionBlock, ds,
                 kAttentionBlock, false);
    for (int64_t r = first; r < tile.rows; ++r) {
      const float row_lse = lse.row(queries.q_begin + r / tile.group)[kv_head * tile.group + r % tile.group];
      BackwardRow(scores + r * kAttentionBlock, d_scores + r * kAttentionBlock, tile.Visible(r, block), tile.scale, row_lse,
                  delta[r]);
    }
    SmallProduct(rows, count, padded, ds, kAttentionBlock, 1, keys, padded, d_query + first * padded, padded, true);
    SmallProduct(count, rows, padded, ds, 1, kAttentionBlock, qs + first * padded, padded, d_keys, padded, false);
    SmallProduct(count, rows, padded, p, 1, kAttentionBlock, d_outputs + first * padded, padded, d_values, padded, false);
    const int32_t* key_rows = queries.key_rows + block * kAttentionBlock;
    ScatterAdd(d_keys, count, padded, tile.dim, key_rows, kv_head * tile.dim, dk);
    ScatterAdd(d_values, count, padded, tile.dim, key_rows, kv_head * tile.dim, dv);
  }
  for (int64_t r = 0; r < tile.rows; ++r) CopyToFloat(d_query + r * padded, tile.dim, tile.Head(dq, r));
}

// HWY_EXPORT wants plain functions.
void ForwardF32(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const float> q, Matrix<const float> k,
                Matrix<const float> v, Matrix<float> out, Matrix<float> lse) {
  ForwardTile<float>(shape, kv_head, tile, q, k, v, out, lse);
}
void ForwardBf16(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const Bf16> q, Matrix<const Bf16> k,
                 Matrix<const Bf16> v, Matrix<Bf16> out, Matrix<float> lse) {
  ForwardTile<Bf16>(shape, kv_head, tile, q, k, v, out, lse);
}
void BackwardF32(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const float> q,
                 Matrix<const float> k, Matrix<const float> v, Matrix<const float> out, Matrix<const float> lse,
                 Matrix<const float> d_out, Matrix<float> dq, Matrix<float> dk, Matrix<float> dv) {
  BackwardTile<float>(shape, kv_head, tile, q, k, v, out, lse, d_out, dq, dk, dv);
}
void BackwardBf16(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const Bf16> q,
                  Matrix<const Bf16> k, Matrix<const Bf16> v, Matrix<const Bf16> out, Matrix<const float> lse,
                  Matrix<const float> d_out, Matrix<float> dq, Matrix<float> dk, Matrix<float> dv) {
  BackwardTile<Bf16>(shape, kv_head, tile, q, k, v, out, lse, d_out, dq, dk, dv);
}

}  // namespace lockstep::model::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::model {
namespace internal {
HWY_EXPORT(ForwardF32);
HWY_EXPORT(ForwardBf16);
HWY_EXPORT(BackwardF32);
HWY_EXPORT(BackwardBf16);

void CheckTile(const AttentionShape& shape, const QueryTile& tile) {
  CHECK(shape.head_dim > 0 && shape.head_dim <= kMaxHeadDim);
  CHECK_EQ(shape.num_heads % shape.num_kv_heads, 0);
  CHECK(tile.count > 0 && tile.count <= MaxTileQueries(shape));
}
}  // namespace internal

using namespace internal;  // NOLINT: the dispatch macros name tables of that namespace

int64_t MaxTileQueries(const AttentionShape& shape) { return std::clamp<int64_t>(kTargetTileRows / shape.group(), 1, 64); }

template <>
void AttentionForward<float>(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const float> q,
                             Matrix<const float> k, Matrix<const float> v, Matrix<float> out, Matrix<float> lse) {
  CheckTile(shape, tile);
  HWY_DYNAMIC_DISPATCH(ForwardF32)(shape, kv_head, tile, q, k, v, out, lse);
}
template <>
void AttentionForward<Bf16>(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const Bf16> q,
                            Matrix<const Bf16> k, Matrix<const Bf16> v, Matrix<Bf16> out, Matrix<float> lse) {
  CheckTile(shape, tile);
  HWY_DYNAMIC_DISPATCH(ForwardBf16)(shape, kv_head, tile, q, k, v, out, lse);
}
template <>
void AttentionBackward<float>(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const float> q,
                              Matrix<const float> k, Matrix<const float> v, Matrix<const float> out, Matrix<const float> lse,
                              Matrix<const float> d_out, Matrix<float> dq, Matrix<float> dk, Matrix<float> dv) {
  CheckTile(shape, tile);
  HWY_DYNAMIC_DISPATCH(BackwardF32)(shape, kv_head, tile, q, k, v, out, lse, d_out, dq, dk, dv);
}
template <>
void AttentionBackward<Bf16>(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const Bf16> q,
                             Matrix<const Bf16> k, Matrix<const Bf16> v, Matrix<const Bf16> out, Matrix<const float> lse,
                             Matrix<const float> d_out, Matrix<float> dq, Matrix<float> dk, Matrix<float> dv) {
  CheckTile(shape, tile);
  HWY_DYNAMIC_DISPATCH(BackwardBf16)(shape, kv_head, tile, q, k, v, out, lse, d_out, dq, dk, dv);
}

}  // namespace lockstep::model
#endif
