#include <algorithm>
#include <cmath>
#include <limits>

#include "model/kernels/cpu/logits_blocks.h"
#include "model/kernels/logits.h"
#include "runtime/base/check.h"

namespace lockstep::model {
namespace {

using Candidate = SamplerScratch::Candidate;
using internal::RowBlocks;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The order of top-k and top-p: larger first, ties to the lower id. No two candidates are equal in it.
bool Precedes(const Candidate& a, const Candidate& b) { return a.x != b.x ? a.x > b.x : a.id < b.id; }

// Candidates above `threshold` among ids [begin, end), bans left out, written to out.
int64_t Collect(absl::Span<const float> logits, const SamplingFilter& filter, int64_t begin, int64_t end, float shift,
                float threshold, Candidate* out) {
  const float inverse_temperature = InverseTemperature(filter.temperature);
  const int64_t found = internal::CollectAbove(logits.data() + begin, end - begin, static_cast<int32_t>(begin),
                                               inverse_temperature, shift, threshold, out);
  const absl::Span<const int32_t> banned = internal::IdsInRange(filter.banned_ids, begin, end);
  if (banned.empty()) return found;
  const auto is_banned = [&](const Candidate& c) { return std::binary_search(banned.begin(), banned.end(), c.id); };
  return std::remove_if(out, out + found, is_banned) - out;
}

// The k first candidates in no particular order. A candidate that only equals the k-th so far has the higher id and
// loses, so the threshold rises strictly.
int64_t CollectTopK(absl::Span<const float> logits, const SamplingFilter& filter, float shift, Candidate* out) {
  constexpr int64_t kStep = 1024;
  const int64_t vocab = static_cast<int64_t>(logits.size());
  const int64_t k = filter.top_k;
  float threshold = kMinusInfinity;
  int64_t count = 0;
  for (int64_t begin = 0; begin < vocab; begin += kStep) {
    count += Collect(logits, filter, begin, std::min(begin + kStep, vocab), shift, threshold, out + count);
    if (count <= k || (count < k + kStep && begin + kStep < vocab && threshold != kMinusInfinity)) continue;
    std::nth_element(out, out + k - 1, out + count, Precedes);
    count = k;
    threshold = out[k - 1].x;
  }
  return count;
}

double Mass(const Candidate* candidates, int64_t count) {
  double mass = 0;
  for (int64_t i = 0; i < count; ++i) mass += candidates[i].weight;
  return mass;
}

// How many of the first candidates are kept so that the mass strictly before each is below `limit`; puts those in
// front. A quickselect by mass: only the part where the border lies is ever sorted.
int64_t SelectNucleus(Candidate* candidates, int64_t count, double limit) {
  int64_t begin = 0, end = count;
  double before = 0;
  while (end - begin > 64) {
    Candidate a = candidates[begin], b = candidates[begin + (end - begin) / 2], c = candidates[end - 1];
    if (Precedes(b, a)) std::swap(a, b);
    const Candidate pivot = Precedes(c, a) ? a : Precedes(c, b) ? c : b;  // of three
    const auto not_after = [&](const Candidate& x) { return !Precedes(pivot, x); };
    const int64_t middle = std::partition(candidates + begin, candidates + end, not_after) - candidates;
    const double mass = Mass(candidates + begin, middle - begin);
    if (before + mass < limit) {
      before += mass;
      begin = middle;
    } else {
      end = middle;
    }
  }
  std::sort(candidates + begin, candidates + end, Precedes);
  while (begin < end && before < limit) before += candidates[begin++].weight;
  return std::max<int64_t>(begin, 1);
}

// Candidates for top-p without top-k: those far below the maximum are left out where the mass shows that they cannot
// matter.
int64_t CollectNucleus(absl::Span<const float> logits, const SamplingFilter& filter, const RowBlocks& blocks,
                       Candidate* out) {
  const int64_t vocab = static_cast<int64_t>(logits.size());
  const double limit = static_cast<double>(filter.top_p) * blocks.total;
  int64_t count = 0;
  for (const float reach :
       {4.0f, 6.0f, 8.0f, 10.0f, 13.0f, std::numeric_limits<float>::infinity()}) {  // e^-reach of the maximum
    count = Collect(logits, filter, 0, vocab, blocks.row_max, blocks.row_max - reach, out);
    // The margin covers the roundings of two sums of the same weights.
    if (Mass(out, count) > limit * (1 + 1e-6)) break;
  }
  return SelectNucleus(out, count, limit);
}

// The kept candidates as a filter: the shorter of both lists, ascending.
LogitFilter MakeFilter(int64_t vocab, int64_t num_kept, SamplerScratch& scratch) {
  constexpr int64_t kFew = 2048;  // sorted in less time than a walk over the vocabulary takes
  const bool list_kept = 2 * num_kept <= vocab;
  int32_t* ids = scratch.ids.data();
  int64_t count = 0;
  if (list_kept && num_kept <= kFew) {
    for (; count < num_kept; ++count) ids[count] = scratch.candidates[count].id;
    std::sort(ids, ids + count);
  } else {
    std::fill(scratch.marks.begin(), scratch.marks.end(), uint8_t{0});
    for (int64_t i = 0; i < num_kept; ++i) scratch.marks[scratch.candidates[i].id] = 1;
    for (int64_t id = 0; id < vocab; ++id) {
      ids[count] = static_cast<int32_t>(id);
      count += (scratch.marks[id] != 0) == list_kept;
    }
  }
  if (count == 0) return {};
  return {list_kept ? KeptIds::Kind::kKept : KeptIds::Kind::kCut, absl::MakeConstSpan(ids, count)};
}

// The first index of a block where the cumulative weight passes `target`; the last with any weight where roundings let
// none do.
int64_t DrawInBlock(const float* weights, int64_t count, double target) {
  double sum = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += weights[i];
    if (sum > target) return i;
    if (weights[i] > 0) last = i;
  }
  return last;
}

int32_t Draw(absl::Span<const float> logits, float inverse_temperature, const LogitFilter& filter,
             const RowBlocks& blocks, double u) {
  double target = u * blocks.total;
  int64_t chosen = 0;
  for (int64_t b = 0; b < blocks.num_blocks; ++b) {
    if (blocks.sums[b].sum == 0) continue;
    const double factor = std::exp(static_cast<double>(blocks.max[b]) - static_cast<double>(blocks.row_max));
    const double mass = factor * blocks.sums[b].sum;
    chosen = b;
    if (mass > target) {
      target /= factor;
      break;
    }
    target -= mass;
    if (b + 1 == blocks.num_blocks) target = mass / factor;
  }
  const int64_t begin = chosen * kVocabBlock;
  const int64_t count = std::min(kVocabBlock, internal::WalkLength(logits, filter) - begin);
  alignas(64) float weights[kVocabBlock];
  internal::WeighBlock(internal::WalkBlock(logits, filter, begin, count), count, inverse_temperature,
                       blocks.max[chosen], weights);
  const int64_t index = begin + DrawInBlock(weights, count, target);
  return filter.kind == KeptIds::Kind::kKept ? filter.ids[index] : static_cast<int32_t>(index);
}

// What top-k and top-p leave, or the bans alone.
LogitFilter ApplyFilter(absl::Span<const float> logits, const SamplingFilter& filter, const RowBlocks& blocks,
                        const LogitFilter& unbanned, SamplerScratch& scratch) {
  const int64_t vocab = static_cast<int64_t>(logits.size());
  const bool top_k = filter.top_k > 0 && filter.top_k < vocab;
  if (!top_k && filter.top_p >= 1) return unbanned;
  Candidate* candidates = scratch.candidates.data();
  int64_t kept = 0;
  if (top_k) {
    kept = CollectTopK(logits, filter, blocks.row_max, candidates);
    if (filter.top_p < 1) {
      const double limit = static_cast<double>(filter.top_p) * Mass(candidates, kept);
      kept = SelectNucleus(candidates, kept, limit);
    }
  } else {
    kept = CollectNucleus(logits, filter, blocks, candidates);
  }
  return MakeFilter(vocab, kept, scratch);
}

}  // namespace

SamplerScratch::SamplerScratch(int64_t vocab_size)
    : candidates(static_cast<size_t>(vocab_size)),
      marks(static_cast<size_t>(vocab_size)),
      ids(static_cast<size_t>(vocab_size) + 1) {}

int32_t ArgMax(absl::Span<const float> logits, absl::Span<const int32_t> banned_ids) {
  const int64_t vocab = static_cast<int64_t>(logits.size());
  const LogitFilter unbanned{banned_ids.empty() ? KeptIds::Kind::kAll : KeptIds::Kind::kCut, banned_ids};
  float best = kMinusInfinity;
  int64_t best_id = -1;
  for (int64_t begin = 0; begin < vocab; begin += kVocabBlock) {
    const int64_t count = std::min(kVocabBlock, vocab - begin);
    const float* values = internal::WalkBlock(logits, unbanned, begin, count);
    const float max = internal::BlockMax(values, count);
    if (max > best || (best_id < 0 && max == best)) {
      // In a block of -inf a ban looks like any other; such a row is not a distribution anyway.
      best = max;
      best_id = begin + (std::find(values, values + count, max) - values);
    }
  }
  return static_cast<int32_t>(std::clamp<int64_t>(best_id, 0, vocab - 1));
}

Sample SampleToken(absl::Span<const float> logits, const SamplingFilter& filter, double u, SamplerScratch& scratch) {
  CHECK_EQ(logits.size(), scratch.candidates.size());
  CHECK_LT(filter.banned_ids.size(), logits.size());
  CHECK(u >= 0 && u < 1);
  static thread_local RowBlocks blocks;
  const float inverse_temperature = InverseTemperature(filter.temperature);
  const LogitFilter unbanned{filter.banned_ids.empty() ? KeptIds::Kind::kAll : KeptIds::Kind::kCut, filter.banned_ids};
  internal::ComputeBlocks(logits, inverse_temperature, unbanned, false, blocks);
  Sample sample;
  if (filter.temperature == 0 || std::isnan(blocks.statistics.log_sum)) {
    sample.id = ArgMax(logits, filter.banned_ids);
    sample.logprob = std::isnan(blocks.statistics.log_sum) ? kNan : 0.0f;
    scratch.ids[0] = sample.id;
    sample.filter = {KeptIds::Kind::kKept, absl::MakeConstSpan(scratch.ids.data(), 1)};
    return sample;
  }
  sample.filter = ApplyFilter(logits, filter, blocks, unbanned, scratch);
  if (sample.filter.kind != unbanned.kind || sample.filter.ids.data() != unbanned.ids.data()) {
    internal::ComputeBlocks(logits, inverse_temperature, sample.filter, false, blocks);
  } else if (unbanned.kind == KeptIds::Kind::kCut) {
    std::copy(unbanned.ids.begin(), unbanned.ids.end(), scratch.ids.begin());
    sample.filter.ids = absl::MakeConstSpan(scratch.ids.data(), unbanned.ids.size());
  }
  sample.id = Draw(logits, inverse_temperature, sample.filter, blocks, u);
  sample.logprob = LogProb(blocks.statistics, logits[sample.id], inverse_temperature);
  return sample;
}

}  // namespace lockstep::model
