// Rows of float32 logits: normaliser, log-probs, entropy, gradient and sampling, with the vocabulary walked in fixed
// blocks.
//
// The distribution of a row is softmax(logits * inverse_temperature) over the ids that its filter leaves. The sampler
// reports log-probs and the learner recomputes them with one and the same function, RowStatistics + LogProb, so equal
// logits, temperature and filter give equal bits.
//
// Bit rule: 64 interleaved float32 chains inside a block of kVocabBlock ids, joined in fixed order; blocks joined in
// double in order. A kept list is a small vocabulary of its own: its values are gathered in the list's order and walked
// in the same way. A cut id counts as a logit of -inf. NaN in a row gives NaN.
//
// Conventions: a banned, cut or not kept id has probability 0, log-prob -inf and gradient 0. Order: bans, temperature,
// top-k, top-p over what top-k left, renormalise. Ties at a border: lower id first. Nucleus sampling: Holtzman et al.,
// 2020.
//
// Single-threaded, one row a call. Scratch inside is thread-local and of fixed size, except SamplerScratch.
#ifndef LOCKSTEP_MODEL_KERNELS_LOGITS_H_
#define LOCKSTEP_MODEL_KERNELS_LOGITS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/data/token_tree.h"

namespace lockstep::model {

inline constexpr int64_t kVocabBlock = 4096;

// Which ids take part: all, the listed ones, or all but the listed ones. Lists ascend.
struct LogitFilter {
  KeptIds::Kind kind = KeptIds::Kind::kAll;
  absl::Span<const int32_t> ids = {};
};

// The factor for a temperature: one float32 rounding. Greedy (0) counts as 1: its distribution is the kept list {id}.
inline float InverseTemperature(float temperature) { return temperature == 0.0f ? 1.0f : 1.0f / temperature; }

struct RowStatistics {
  float max = 0;      // largest logit * inverse_temperature
  float log_sum = 0;  // log(sum exp(x - max)); log-sum-exp is max + log_sum
  float entropy = 0;  // nats; 0 unless asked for
};

RowStatistics ComputeStatistics(absl::Span<const float> logits, float inverse_temperature, const LogitFilter& filter,
                                bool with_entropy = false);

// Log-prob of an id whose logit is given and which the filter leaves.
inline float LogProb(const RowStatistics& statistics, float logit, float inverse_temperature) {
  return (logit * inverse_temperature - statistics.max) - statistics.log_sum;
}

// One target of a row, with the gradient of the loss by its log-prob and by the row's entropy (a row may predict
// several next tokens, each under a temperature and filter of its own).
struct LogitTarget {
  int32_t id = 0;
  float inverse_temperature = 1;
  LogitFilter filter = {};
  RowStatistics statistics = {};  // of this temperature and filter; with entropy if d_entropy is not 0
  float d_logprob = 0;
  float d_entropy = 0;
};

// Gradient of the loss by the logits, rounded once to T:
//   d x[j] = sum over targets of  inverse_temperature * (d_logprob * ([j = id] - p[j]) - d_entropy * p[j] * (log p[j] +
//   H))
// d_logits // [vocab] T; may be the logits themselves where T is float.
template <typename T>
void LogitsBackward(absl::Span<const float> logits, absl::Span<const LogitTarget> targets, T* d_logits);

struct SamplingFilter {
  float temperature = 1;                      // 0: greedy
  int32_t top_k = 0;                          // 0: off
  float top_p = 1;                            // 1: off
  absl::Span<const int32_t> banned_ids = {};  // ascending, distinct; not the whole vocabulary
};

// Memory for SampleToken; one per thread. Allocates at construction only.
struct SamplerScratch {
  explicit SamplerScratch(int64_t vocab_size);
  struct Candidate {
    float x;  // logit * inverse_temperature
    int32_t id;
    float weight;  // exp(x - largest x)
  };
  std::vector<Candidate> candidates;  // [vocab]
  std::vector<uint8_t> marks;         // [vocab]
  std::vector<int32_t> ids;           // [vocab + 1] the list of the last result
};

struct Sample {
  int32_t id = 0;
  float logprob = 0;   // of the distribution really sampled from; 0 for greedy; NaN if a logit is NaN
  LogitFilter filter;  // what was kept or cut, whichever list is shorter; lives in the scratch until its next use
};

// Draws one id with u in [0, 1): the id where the cumulative distribution in id order passes u. Pure: equal arguments,
// equal result. Greedy keeps {id}.
Sample SampleToken(absl::Span<const float> logits, const SamplingFilter& filter, double u, SamplerScratch& scratch);

// Largest logit that is not banned, ties to the lower id.
int32_t ArgMax(absl::Span<const float> logits, absl::Span<const int32_t> banned_ids);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_KERNELS_LOGITS_H_
