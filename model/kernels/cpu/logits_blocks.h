// The walk over a row's logits in blocks, shared by statistics, gradient and sampling. Internal to model/kernels/cpu.
#ifndef LOCKSTEP_MODEL_KERNELS_CPU_LOGITS_BLOCKS_H_
#define LOCKSTEP_MODEL_KERNELS_CPU_LOGITS_BLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "model/kernels/logits.h"

namespace lockstep::model::internal {

// Vector loops over one block of at most kVocabBlock values.

float BlockMax(const float* values, int64_t count);  // -inf where count is 0; NaN values may be overlooked
// sum exp(x - shift) and, if asked for, sum exp(x - shift) * (x - shift), where x = value * inverse_temperature.
struct BlockSums {
  float sum = 0;
  float weighted = 0;
};
BlockSums SumBlock(const float* values, int64_t count, float inverse_temperature, float shift, bool with_weighted);
// weights[i] = exp(x - shift)
void WeighBlock(const float* values, int64_t count, float inverse_temperature, float shift, float* weights);
// gradient[i] += inverse_temperature * (-d_logprob * p - d_entropy * p * (log p + entropy))
void AddGradient(const float* values, int64_t count, const LogitTarget& target, float* gradient);
// Appends the ids whose x is above `threshold` to `out`, with their weight exp(x - shift); returns how many. id =
// first_id + index.
int64_t CollectAbove(const float* values, int64_t count, int32_t first_id, float inverse_temperature, float shift,
                     float threshold, SamplerScratch::Candidate* out);

// A thread's copy of a block whose values do not lie side by side.
float* BlockCopy();  // [kVocabBlock]

inline absl::Span<const int32_t> IdsInRange(absl::Span<const int32_t> ids, int64_t begin, int64_t end) {
  const auto first = std::lower_bound(ids.begin(), ids.end(), begin);
  const auto last = std::lower_bound(first, ids.end(), end);
  return ids.subspan(first - ids.begin(), last - first);
}

// Number of values that a filter walks over: cut ids are walked as -inf.
inline int64_t WalkLength(absl::Span<const float> logits, const LogitFilter& filter) {
  return static_cast<int64_t>(filter.kind == KeptIds::Kind::kKept ? filter.ids.size() : logits.size());
}

// The values of one block of the walk: in place, or in BlockCopy().
inline const float* WalkBlock(absl::Span<const float> logits, const LogitFilter& filter, int64_t begin, int64_t count) {
  float* copy = BlockCopy();
  switch (filter.kind) {
    case KeptIds::Kind::kAll:
      break;
    case KeptIds::Kind::kKept:
      for (int64_t i = 0; i < count; ++i) copy[i] = logits[filter.ids[begin + i]];
      return copy;
    case KeptIds::Kind::kCut: {
      const absl::Span<const int32_t> cut = IdsInRange(filter.ids, begin, begin + count);
      if (cut.empty()) break;
      std::copy_n(logits.data() + begin, count, copy);
      for (const int32_t id : cut) copy[id - begin] = -std::numeric_limits<float>::infinity();
      return copy;
    }
  }
  return logits.data() + begin;
}

// What the walk finds; kept so that the sampler can draw from it.
inline constexpr int64_t kMaxBlocks = 1024;
struct RowBlocks {
  int64_t num_blocks = 0;
  float max[kMaxBlocks];       // largest x of the block; -inf where it holds none
  BlockSums sums[kMaxBlocks];  // relative to the block's own max
  float row_max = 0;
  double total = 0;  // sum exp(x - row_max)
  RowStatistics statistics;
};
void ComputeBlocks(absl::Span<const float> logits, float inverse_temperature, const LogitFilter& filter,
                   bool with_entropy, RowBlocks& blocks);

}  // namespace lockstep::model::internal

#endif  // LOCKSTEP_MODEL_KERNELS_CPU_LOGITS_BLOCKS_H_
