#include "model/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/kernels/cpu/attention.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "model/kernels/cpu/gather-inl.h"
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
    for (Buffer* state : {&max, &sum, &span_max, &span_sum, &factors}) *state = floats(rows_ + 16);  // whole vectors
  }
  Buffer queries, output, span_output, d_output, d_query;  // [rows, dim]
  Buffer scores, d_scores;                                 // [rows, 64]
  Buffer keys, values, d_keys, d_values;                   // [64, dim]
  Buffer keys_transposed, values_transposed;               // [dim, 64]
  Buffer max, sum, span_max, span_sum, factors;            // [rows]

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

// Keys or values of one block.
template <typename T>
HWY_INLINE ScatteredRows<T> BlockRows(const Tile<T>& tile, int64_t block, Matrix<const T> m) {
  return ScatteredRows<T>(m.data + tile.kv_head * tile.dim, m.stride, tile.queries.key_rows + block * kAttentionBlock,
                          BlockCount(tile, block), tile.dim);
}

// Softmax in progress: per row the largest score, the sum of exp(score - max), and the values weighted so.
struct RunningSoftmax {
  float* max;
  float* sum;
  float* output;  // [rows, padded]
};

HWY_INLINE float ExpOne(float x) { return hn::GetLane(Exp(hn::Set(Float(), x))); }

// Scales the scores of one row and returns the largest of those it sees; the others become -inf.
template <bool kAll>
HWY_INLINE float ScaleScores(float* scores, int64_t visible, float scale) {
  const Float d;
  const Vec minus_infinity = hn::Set(d, kMinusInfinity);
  const Vec factor = hn::Set(d, scale);
  Vec largest = minus_infinity;
  for (int64_t j = 0; j < kAttentionBlock; j += NumLanes()) {
    Vec scaled = hn::Mul(hn::LoadU(d, scores + j), factor);
    if constexpr (!kAll) scaled = hn::IfThenElse(FirstLanes(visible - j), scaled, minus_infinity);
    largest = hn::Max(largest, scaled);
    hn::StoreU(scaled, d, scores + j);
  }
  return MaxLanes(largest);
}

// Turns the scores of one row into weights exp(score - max) and returns their sum. Weights of -inf are 0.
HWY_INLINE float WeighScores(float* scores, float max) {
  const Float d;
  const Vec shift = hn::Set(d, max);
  Vec total = hn::Zero(d);
  for (int64_t j = 0; j < kAttentionBlock; j += NumLanes()) {
    const Vec weight = Exp(hn::Sub(hn::LoadU(d, scores + j), shift));
    total = hn::Add(total, weight);
    hn::StoreU(weight, d, scores + j);
  }
  return SumLanes(total);
}

HWY_INLINE void ScaleRow(float* row, int64_t count, float factor) {
  const Float d;
  const Vec f = hn::Set(d, factor);
  for (int64_t i = 0; i < count; i += NumLanes()) hn::StoreU(hn::Mul(hn::LoadU(d, row + i), f), d, row + i);
}

// Turns the scores of rows [first, rows) into weights and folds their sums into `softmax`, its output scaled to match.
template <typename T>
HWY_INLINE void SoftmaxRows(const Tile<T>& tile, int64_t block, int64_t first, bool first_block, float* scores,
                            RunningSoftmax softmax) {
  float* factors = tile.scratch.factors.template as<float>();
  for (int64_t r = first; r < tile.rows; ++r) {
    float* row = scores + r * kAttentionBlock;
    const int64_t visible = tile.Visible(r, block);
    const float max = visible == kAttentionBlock ? ScaleScores<true>(row, visible, tile.scale)
                                                 : ScaleScores<false>(row, visible, tile.scale);
    const float before = first_block ? kMinusInfinity : softmax.max[r];
    softmax.max[r] = std::max(before, max);
    factors[r] = before - softmax.max[r];
  }
  for (int64_t r = first; r < tile.rows; r += NumLanes()) {
    hn::StoreU(Exp(hn::LoadU(Float(), factors + r)), Float(), factors + r);
  }
  for (int64_t r = first; r < tile.rows; ++r) {
    const float sum = WeighScores(scores + r * kAttentionBlock, softmax.max[r]);
    softmax.sum[r] = first_block ? sum : softmax.sum[r] * factors[r] + sum;
    // Most often the maximum stays; a multiplication by 1 changes nothing.
    if (!first_block && factors[r] != 1.0f) ScaleRow(softmax.output + r * tile.padded, tile.padded, factors[r]);
  }
}

// output (+)= weights * values over the visible keys of each row; rows that see equally much go together.
template <typename T>
HWY_INLINE void AddValues(const Tile<T>& tile, int64_t block, int64_t first_row, bool add, const float* weights,
                          const float* values, float* output) {
  int64_t r = first_row;
  while (r < tile.rows) {
    const int64_t visible = tile.Visible(r, block);
    const int64_t end = visible == kAttentionBlock ? tile.rows : r + tile.group;  // later queries see more
    SmallProduct(end - r, visible, tile.padded, weights + r * kAttentionBlock, kAttentionBlock, 1, values, tile.padded,
                 output + r * tile.padded, tile.padded, add);
    r = end;
  }
}

// Many rows share float32 copies of the block's keys and values.
template <typename T>
HWY_INLINE void ForwardBlock(const Tile<T>& tile, int64_t block, bool first_block, const ScatteredRows<T>& keys,
                             const ScatteredRows<T>& values, RunningSoftmax softmax) {
  AttentionScratch& scratch = tile.scratch;
  float* key_copy = scratch.keys_transposed.template as<float>();
  float* value_copy = scratch.values.template as<float>();
  float* scores = scratch.scores.template as<float>();
  GatherTransposed(keys, key_copy);
  Gather(values, tile.padded, value_copy);
  const int64_t first = tile.FirstRow(block);
  SmallProduct(tile.rows - first, tile.dim, kAttentionBlock, scratch.queries.template as<float>() + first * tile.padded,
               tile.padded, 1, key_copy, kAttentionBlock, scores + first * kAttentionBlock, kAttentionBlock, false);
  SoftmaxRows(tile, block, first, first_block, scores, softmax);
  AddValues(tile, block, first, !first_block, scores, value_copy, softmax.output);
}

// One query, few heads: decoding.
template <int kRows, typename T>
HWY_INLINE void ForwardBlockDirect(const Tile<T>& tile, int64_t block, bool first_block, const ScatteredRows<T>& keys,
                                   const ScatteredRows<T>& values, RunningSoftmax softmax) {
  float* scores = tile.scratch.scores.template as<float>();
  DirectScores<kRows>(keys, tile.scratch.queries.template as<float>(), tile.padded, scores);
  SoftmaxRows(tile, block, 0, first_block, scores, softmax);
  DirectOutputs<kRows>(values, scores, !first_block, softmax.output, tile.padded);
}

template <typename T>
HWY_INLINE void ForwardAnyBlock(const Tile<T>& tile, int64_t block, bool first_block, Matrix<const T> k,
                                Matrix<const T> v, RunningSoftmax softmax) {
  const ScatteredRows<T> keys = BlockRows(tile, block, k), values = BlockRows(tile, block, v);
  const bool direct = kHasDirectScores && tile.queries.count == 1 && tile.dim % 64 == 0;
  if (direct && tile.rows == 1) return ForwardBlockDirect<1>(tile, block, first_block, keys, values, softmax);
  if (direct && tile.rows == 2) return ForwardBlockDirect<2>(tile, block, first_block, keys, values, softmax);
  if (direct && tile.rows == 3) return ForwardBlockDirect<3>(tile, block, first_block, keys, values, softmax);
  if (direct && tile.rows == 4) return ForwardBlockDirect<4>(tile, block, first_block, keys, values, softmax);
  ForwardBlock(tile, block, first_block, keys, values, softmax);
}

// Merges a finished span of a row into the spans before it.
HWY_INLINE void MergeSpan(RunningSoftmax total, RunningSoftmax span, int64_t r, int64_t padded) {
  const Float d;
  const float max = std::max(total.max[r], span.max[r]);
  const float before = ExpOne(total.max[r] - max);
  const float now = ExpOne(span.max[r] - max);
  float* output = total.output + r * padded;
  for (int64_t i = 0; i < padded; i += NumLanes()) {
    const Vec scaled = hn::Mul(hn::LoadU(d, output + i), hn::Set(d, before));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, span.output + r * padded + i), hn::Set(d, now), scaled), d, output + i);
  }
  total.sum[r] = total.sum[r] * before + span.sum[r] * now;
  total.max[r] = max;
}

template <typename T>
void ForwardTile(const AttentionShape& shape, int64_t kv_head, const QueryTile& queries, Matrix<const T> q,
                 Matrix<const T> k, Matrix<const T> v, Matrix<T> out, Matrix<float> lse) {
  Tile<T> tile(shape, kv_head, queries);
  AttentionScratch& scratch = tile.scratch;
  GatherRows(tile, q, scratch.queries.as<float>());
  const RunningSoftmax total{scratch.max.as<float>(), scratch.sum.as<float>(), scratch.output.as<float>()};
  const RunningSoftmax part{scratch.span_max.as<float>(), scratch.span_sum.as<float>(),
                            scratch.span_output.as<float>()};
  constexpr int64_t kBlocksOfSpan = kAttentionSpan / kAttentionBlock;
  for (int64_t span = 0; span < tile.num_blocks(); span += kBlocksOfSpan) {
    const RunningSoftmax softmax = span == 0 ? total : part;
    const int64_t end = std::min(span + kBlocksOfSpan, tile.num_blocks());
    for (int64_t block = span; block < end; ++block) ForwardAnyBlock(tile, block, block == span, k, v, softmax);
    if (span == 0) continue;
    for (int64_t r = tile.FirstRow(span); r < tile.rows; ++r) MergeSpan(total, part, r, tile.padded);
  }
  for (int64_t r = 0; r < tile.rows; ++r) {
    const float* from = total.output + r * tile.padded;
    const Vec factor = hn::Set(Float(), 1.0f / total.sum[r]);
    T* to = tile.Head(out, r);
    ForVectors(tile.dim,
               [&](int64_t i, int64_t n) HWY_ATTR { StoreUpTo(hn::Mul(LoadUpTo(from + i, n), factor), to + i, n); });
    if (lse.data != nullptr) {
      lse.row(queries.q_begin + r / tile.group)[kv_head * tile.group + r % tile.group] =
          total.max[r] + std::log(total.sum[r]);
    }
  }
}

// Weights p = exp(s * scale - lse) and d_scores = p * (dp - delta) * scale of one row, zero where a key is not visible.
HWY_INLINE void BackwardRow(float* scores, float* d_scores, int64_t visible, float scale, float lse, float delta) {
  const Float d;
  const Vec factor = hn::Set(d, scale), shift = hn::Set(d, lse), offset = hn::Set(d, delta);
  for (int64_t j = 0; j < kAttentionBlock; j += NumLanes()) {
    const Mask seen = FirstLanes(visible - j);
    const Vec weight = hn::IfThenElseZero(seen, Exp(hn::Sub(hn::Mul(hn::LoadU(d, scores + j), factor), shift)));
    const Vec inner = hn::Mul(hn::Sub(hn::LoadU(d, d_scores + j), offset), factor);
    hn::StoreU(weight, d, scores + j);
    hn::StoreU(hn::IfThenElseZero(seen, hn::Mul(weight, inner)), d, d_scores + j);
  }
}

HWY_INLINE void ScatterAdd(const float* from, int64_t count, int64_t padded, int64_t dim, const int32_t* rows,
                           int64_t column, Matrix<float> to) {
  for (int64_t j = 0; j < count; ++j) {
    float* target = to.row(rows[j]) + column;
    const float* source = from + j * padded;
    ForVectors(dim, [&](int64_t i, int64_t n) HWY_ATTR {
      StoreUpTo(hn::Add(LoadUpTo(target + i, n), LoadUpTo(source + i, n)), target + i, n);
    });
  }
}

template <typename T>
void BackwardTile(const AttentionShape& shape, int64_t kv_head, const QueryTile& queries, Matrix<const T> q,
                  Matrix<const T> k, Matrix<const T> v, Matrix<const T> out, Matrix<const float> lse,
                  Matrix<const float> d_out, Matrix<float> dq, Matrix<float> dk, Matrix<float> dv) {
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
  float* delta = scratch.sum.as<float>();
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
    const ScatteredRows<T> key_rows_of_block = BlockRows(tile, block, k);
    Gather(key_rows_of_block, padded, keys);
    GatherTransposed(key_rows_of_block, keys_transposed);
    GatherTransposed(BlockRows(tile, block, v), values_transposed);
    const int64_t first = tile.FirstRow(block);
    const int64_t rows = tile.rows - first;
    float* p = scores + first * kAttentionBlock;
    float* ds = d_scores + first * kAttentionBlock;
    SmallProduct(rows, tile.dim, kAttentionBlock, qs + first * padded, padded, 1, keys_transposed, kAttentionBlock, p,
                 kAttentionBlock, false);
    SmallProduct(rows, tile.dim, kAttentionBlock, d_outputs + first * padded, padded, 1, values_transposed,
                 kAttentionBlock, ds, kAttentionBlock, false);
    for (int64_t r = first; r < tile.rows; ++r) {
      const float row_lse = lse.row(queries.q_begin + r / tile.group)[kv_head * tile.group + r % tile.group];
      BackwardRow(scores + r * kAttentionBlock, d_scores + r * kAttentionBlock, tile.Visible(r, block), tile.scale,
                  row_lse, delta[r]);
    }
    SmallProduct(rows, count, padded, ds, kAttentionBlock, 1, keys, padded, d_query + first * padded, padded, true);
    SmallProduct(count, rows, padded, ds, 1, kAttentionBlock, qs + first * padded, padded, d_keys, padded, false);
    SmallProduct(count, rows, padded, p, 1, kAttentionBlock, d_outputs + first * padded, padded, d_values, padded,
                 false);
    const int32_t* key_rows = queries.key_rows + block * kAttentionBlock;
    ScatterAdd(d_keys, count, padded, tile.dim, key_rows, kv_head * tile.dim, dk);
    ScatterAdd(d_values, count, padded, tile.dim, key_rows, kv_head * tile.dim, dv);
  }
  for (int64_t r = 0; r < tile.rows; ++r) CopyToFloat(d_query + r * padded, tile.dim, tile.Head(dq, r));
}

// HWY_EXPORT wants plain functions.
void ForwardF32(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const float> q,
                Matrix<const float> k, Matrix<const float> v, Matrix<float> out, Matrix<float> lse) {
  ForwardTile<float>(shape, kv_head, tile, q, k, v, out, lse);
}
void ForwardBf16(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const Bf16> q,
                 Matrix<const Bf16> k, Matrix<const Bf16> v, Matrix<Bf16> out, Matrix<float> lse) {
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

int64_t MaxTileQueries(const AttentionShape& shape) {
  return std::clamp<int64_t>(kTargetTileRows / shape.group(), 1, 64);
}

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
void AttentionBackward<float>(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile,
                              Matrix<const float> q, Matrix<const float> k, Matrix<const float> v,
                              Matrix<const float> out, Matrix<const float> lse, Matrix<const float> d_out,
                              Matrix<float> dq, Matrix<float> dk, Matrix<float> dv) {
  CheckTile(shape, tile);
  HWY_DYNAMIC_DISPATCH(BackwardF32)(shape, kv_head, tile, q, k, v, out, lse, d_out, dq, dk, dv);
}
template <>
void AttentionBackward<Bf16>(const AttentionShape& shape, int64_t kv_head, const QueryTile& tile, Matrix<const Bf16> q,
                             Matrix<const Bf16> k, Matrix<const Bf16> v, Matrix<const Bf16> out,
                             Matrix<const float> lse, Matrix<const float> d_out, Matrix<float> dq, Matrix<float> dk,
                             Matrix<float> dv) {
  CheckTile(shape, tile);
  HWY_DYNAMIC_DISPATCH(BackwardBf16)(shape, kv_head, tile, q, k, v, out, lse, d_out, dq, dk, dv);
}

}  // namespace lockstep::model
#endif
