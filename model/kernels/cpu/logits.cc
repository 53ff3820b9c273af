#include "model/kernels/logits.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "model/kernels/cpu/logits_blocks.h"
#include "model/kernels/elementwise.h"
#include "runtime/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/kernels/cpu/logits.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "model/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::model::internal::HWY_NAMESPACE {

constexpr int64_t kChains = 64;  // value i belongs to chain i % kChains

float BlockMaxOf(const float* values, int64_t count) {
  const Float d;
  Vec a = hn::Set(d, -std::numeric_limits<float>::infinity());
  Vec b = a;
  const int64_t lanes = NumLanes();
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    a = hn::Max(a, hn::LoadU(d, values + i));
    b = hn::Max(b, hn::LoadU(d, values + i + lanes));
  }
  float result = MaxLanes(hn::Max(a, b));
  for (; i < count; ++i) result = values[i] > result ? values[i] : result;
  return result;
}

// Values of the last, shorter round of chains, filled up with -inf, which weighs nothing.
struct Tail {
  alignas(64) float values[kChains];
  Tail(const float* from, int64_t count) {
    for (int64_t i = 0; i < kChains; ++i) values[i] = i < count ? from[i] : -std::numeric_limits<float>::infinity();
  }
};

HWY_INLINE float JoinChains(float* chains) {
  for (int64_t width = kChains / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) chains[i] += chains[i + width];
  }
  return chains[0];
}

// One vector of a chain: weight exp(x - shift) and, if wanted, weight * (x - shift), 0 where the weight is 0.
template <bool kWeighted>
HWY_INLINE void AddWeights(const float* values, Vec scale, Vec shift, Vec& sum, Vec& weighted) {
  const Vec x = hn::Sub(hn::Mul(hn::LoadU(Float(), values), scale), shift);
  const Vec weight = Exp(x);
  sum = hn::Add(sum, weight);
  if constexpr (kWeighted) {
    const auto none = hn::Eq(weight, hn::Zero(Float()));
    weighted = hn::Add(weighted, hn::IfThenZeroElse(none, hn::Mul(weight, x)));
  }
}

template <bool kWeighted>
BlockSums SumBlockOf(const float* values, int64_t count, float inverse_temperature, float block_shift) {
  const Float d;
  const int64_t lanes = NumLanes();
  const Vec scale = hn::Set(d, inverse_temperature);
  const Vec shift = hn::Set(d, block_shift);
  const int64_t whole = count / kChains * kChains;
  const Tail tail(values + whole, count - whole);
  alignas(64) float sums[kChains], weights[kChains];
  for (int64_t c = 0; c < kChains; c += 4 * lanes) {
    Vec s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, w0 = s0, w1 = s0, w2 = s0, w3 = s0;
    for (int64_t i = 0; i <= whole; i += kChains) {
      if (i == whole && whole == count) break;
      const float* from = (i < whole ? values + i : tail.values) + c;
      AddWeights<kWeighted>(from, scale, shift, s0, w0);
      AddWeights<kWeighted>(from + lanes, scale, shift, s1, w1);
      AddWeights<kWeighted>(from + 2 * lanes, scale, shift, s2, w2);
      AddWeights<kWeighted>(from + 3 * lanes, scale, shift, s3, w3);
    }
    hn::StoreU(s0, d, sums + c);
    hn::StoreU(s1, d, sums + c + lanes);
    hn::StoreU(s2, d, sums + c + 2 * lanes);
    hn::StoreU(s3, d, sums + c + 3 * lanes);
    hn::StoreU(w0, d, weights + c);
    hn::StoreU(w1, d, weights + c + lanes);
    hn::StoreU(w2, d, weights + c + 2 * lanes);
    hn::StoreU(w3, d, weights + c + 3 * lanes);
  }
  BlockSums result;
  result.sum = JoinChains(sums);
  if (kWeighted) result.weighted = JoinChains(weights);
  return result;
}

BlockSums SumBlockPlain(const float* values, int64_t count, float inverse_temperature, float shift) {
  return SumBlockOf<false>(values, count, inverse_temperature, shift);
}
BlockSums SumBlockWeighted(const float* values, int64_t count, float inverse_temperature, float shift) {
  return SumBlockOf<true>(values, count, inverse_temperature, shift);
}

void WeighBlockOf(const float* values, int64_t count, float inverse_temperature, float block_shift, float* weights) {
  const Vec scale = hn::Set(Float(), inverse_temperature);
  const Vec shift = hn::Set(Float(), block_shift);
  ForVectors(count, [&](int64_t i, int64_t n) HWY_ATTR {
    StoreUpTo(Exp(hn::Sub(hn::Mul(LoadUpTo(values + i, n), scale), shift)), weights + i, n);
  });
}

void AddGradientOf(const float* values, int64_t count, const LogitTarget& target, float* gradient) {
  const Float d;
  const Vec scale = hn::Set(d, target.inverse_temperature);
  const Vec max = hn::Set(d, target.statistics.max);
  const Vec log_sum = hn::Set(d, target.statistics.log_sum);
  const Vec entropy = hn::Set(d, target.statistics.entropy);
  const Vec from_logprob = hn::Set(d, -target.inverse_temperature * target.d_logprob);
  const Vec from_entropy = hn::Set(d, -target.inverse_temperature * target.d_entropy);
  const bool with_entropy = target.d_entropy != 0;
  ForVectors(count, [&](int64_t i, int64_t n) HWY_ATTR {
    const Vec logprob = hn::Sub(hn::Sub(hn::Mul(LoadUpTo(values + i, n), scale), max), log_sum);
    const Vec p = Exp(logprob);
    Vec factor = from_logprob;
    if (with_entropy) factor = hn::MulAdd(from_entropy, hn::Add(logprob, entropy), factor);
    // Where p is 0 the factor may be infinite (log 0): no gradient there.
    const Vec change = hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), hn::Mul(p, factor));
    StoreUpTo(hn::Add(LoadUpTo(gradient + i, n), change), gradient + i, n);
  });
}

int64_t CollectAboveOf(const float* values, int64_t count, int32_t first_id, float inverse_temperature, float shift_by,
                       float threshold, SamplerScratch::Candidate* out) {
  const Float d;
  const Vec scale = hn::Set(d, inverse_temperature);
  const Vec shift = hn::Set(d, shift_by);
  const Vec border = hn::Set(d, threshold);
  const hn::RebindToSigned<Float> di;
  alignas(64) float xs[16] = {}, weights[16] = {};
  alignas(64) int32_t ids[16] = {};
  int64_t found = 0;
  ForVectors(count, [&](int64_t i, int64_t n) HWY_ATTR {
    const Vec x = hn::Mul(LoadUpTo(values + i, n), scale);
    const Mask above = hn::And(hn::Gt(x, border), FirstLanes(n));
    if (hn::AllFalse(d, above)) return;
    const int64_t matches = static_cast<int64_t>(hn::CompressStore(x, above, d, xs));
    hn::CompressStore(Exp(hn::Sub(x, shift)), above, d, weights);
    hn::CompressStore(hn::Iota(di, static_cast<int32_t>(first_id + i)), hn::RebindMask(di, above), di, ids);
    for (int64_t j = 0; j < matches; ++j) out[found++] = {xs[j], ids[j], weights[j]};
  });
  return found;
}

}  // namespace lockstep::model::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::model {
namespace internal {
HWY_EXPORT(BlockMaxOf);
HWY_EXPORT(SumBlockPlain);
HWY_EXPORT(SumBlockWeighted);
HWY_EXPORT(WeighBlockOf);
HWY_EXPORT(AddGradientOf);
HWY_EXPORT(CollectAboveOf);

float BlockMax(const float* values, int64_t count) { return HWY_DYNAMIC_DISPATCH(BlockMaxOf)(values, count); }
BlockSums SumBlock(const float* values, int64_t count, float inverse_temperature, float shift, bool with_weighted) {
  if (with_weighted) return HWY_DYNAMIC_DISPATCH(SumBlockWeighted)(values, count, inverse_temperature, shift);
  return HWY_DYNAMIC_DISPATCH(SumBlockPlain)(values, count, inverse_temperature, shift);
}
void WeighBlock(const float* values, int64_t count, float inverse_temperature, float shift, float* weights) {
  HWY_DYNAMIC_DISPATCH(WeighBlockOf)(values, count, inverse_temperature, shift, weights);
}
void AddGradient(const float* values, int64_t count, const LogitTarget& target, float* gradient) {
  HWY_DYNAMIC_DISPATCH(AddGradientOf)(values, count, target, gradient);
}
int64_t CollectAbove(const float* values, int64_t count, int32_t first_id, float inverse_temperature, float shift,
                     float threshold, SamplerScratch::Candidate* out) {
  return HWY_DYNAMIC_DISPATCH(CollectAboveOf)(values, count, first_id, inverse_temperature, shift, threshold, out);
}

float* BlockCopy() {
  alignas(64) static thread_local float copy[kVocabBlock];
  return copy;
}

void ComputeBlocks(absl::Span<const float> logits, float inverse_temperature, const LogitFilter& filter,
                   bool with_entropy, RowBlocks& blocks) {
  const int64_t length = WalkLength(logits, filter);
  blocks.num_blocks = (length + kVocabBlock - 1) / kVocabBlock;
  CHECK_LE(blocks.num_blocks, kMaxBlocks);
  blocks.row_max = -std::numeric_limits<float>::infinity();
  for (int64_t b = 0; b < blocks.num_blocks; ++b) {
    const int64_t count = std::min(kVocabBlock, length - b * kVocabBlock);
    const float* values = WalkBlock(logits, filter, b * kVocabBlock, count);
    // Multiplication by a positive number and its rounding keep order: the largest logit is the largest x.
    const float max = BlockMax(values, count) * inverse_temperature;
    blocks.max[b] = max;
    // A block of -inf weighs nothing, unless NaN hides in it, which the shift 0 brings to light.
    blocks.sums[b] =
        SumBlock(values, count, inverse_temperature, std::isinf(max) && max < 0 ? 0.0f : max, with_entropy);
    if (max > blocks.row_max || std::isnan(max)) blocks.row_max = max;
  }
  double total = 0, weighted = 0;
  for (int64_t b = 0; b < blocks.num_blocks; ++b) {
    const BlockSums& sums = blocks.sums[b];
    if (sums.sum == 0) continue;
    const double below = static_cast<double>(blocks.max[b]) - static_cast<double>(blocks.row_max);
    const double factor = std::isnan(sums.sum) ? 1.0 : std::exp(below);
    total += factor * sums.sum;
    if (with_entropy) weighted += factor * (sums.weighted + below * sums.sum);
  }
  blocks.total = total;
  const double log_total = std::log(total);
  blocks.statistics.max = blocks.row_max;
  blocks.statistics.log_sum = static_cast<float>(log_total);
  blocks.statistics.entropy = with_entropy ? static_cast<float>(log_total - weighted / total) : 0.0f;
}

}  // namespace internal

RowStatistics ComputeStatistics(absl::Span<const float> logits, float inverse_temperature, const LogitFilter& filter,
                                bool with_entropy) {
  static thread_local internal::RowBlocks blocks;
  internal::ComputeBlocks(logits, inverse_temperature, filter, with_entropy, blocks);
  return blocks.statistics;
}

namespace {

// Adds one target's part to the gradient of the ids [begin, begin + count).
void AddTarget(absl::Span<const float> logits, const LogitTarget& target, int64_t begin, int64_t count,
               float* gradient) {
  if (target.filter.kind == KeptIds::Kind::kKept) {
    const absl::Span<const int32_t> kept = internal::IdsInRange(target.filter.ids, begin, begin + count);
    float* values = internal::BlockCopy();
    alignas(64) float change[kVocabBlock];
    const int64_t num_kept = static_cast<int64_t>(kept.size());
    for (int64_t i = 0; i < num_kept; ++i) values[i] = logits[kept[i]];
    std::fill(change, change + num_kept, 0.0f);
    internal::AddGradient(values, num_kept, target, change);
    for (int64_t i = 0; i < num_kept; ++i) gradient[kept[i] - begin] += change[i];
  } else {
    internal::AddGradient(internal::WalkBlock(logits, target.filter, begin, count), count, target, gradient);
  }
  if (target.id >= begin && target.id < begin + count) {
    gradient[target.id - begin] += target.inverse_temperature * target.d_logprob;
  }
}

}  // namespace

template <typename T>
void LogitsBackward(absl::Span<const float> logits, absl::Span<const LogitTarget> targets, T* d_logits) {
  const int64_t vocab = static_cast<int64_t>(logits.size());
  alignas(64) float gradient[kVocabBlock];
  for (int64_t begin = 0; begin < vocab; begin += kVocabBlock) {
    const int64_t count = std::min(kVocabBlock, vocab - begin);
    std::fill(gradient, gradient + count, 0.0f);
    for (const LogitTarget& target : targets) AddTarget(logits, target, begin, count, gradient);
    ConvertRows(Matrix<const float>(gradient, 1, count), Matrix<T>(d_logits + begin, 1, count));
  }
}
template void LogitsBackward<float>(absl::Span<const float>, absl::Span<const LogitTarget>, float*);
template void LogitsBackward<Bf16>(absl::Span<const float>, absl::Span<const LogitTarget>, Bf16*);

}  // namespace lockstep::model
#endif
