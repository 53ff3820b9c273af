// `lockstep sample`: requests to sample, as JSON lines, all in one continuous batch.
//
//   {"ids": [1, 42]} or {"messages": [{"role": "user", "content": "Hi"}]}, and optionally
//   "seed" (0), "temperature" (1), "top_k" (0), "top_p" (1), "max_tokens" (64), "min_tokens" (0), "stop" ([]), "n" (1)
//
// is answered by n lines {"ids": [...], "logprobs": [...], "text": "...", "finish_reason": "stop" | "length"}, in the
// order of requests and samples. `ids` is the completion with its stop id, `logprobs` are of the distribution really
// sampled from. A request's answer depends on the request alone: lines beside it change nothing.
#ifndef LOCKSTEP_RUNTIME_JOB_SAMPLE_STREAM_H_
#define LOCKSTEP_RUNTIME_JOB_SAMPLE_STREAM_H_

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rollout/engine.h"
#include "runtime/base/json.h"
#include "runtime/data/sampling_params.h"

namespace lockstep::job {

// Text in, ids out, and back: what the stream needs of a tokenizer and its chat template.
class PromptCodec {
 public:
  virtual ~PromptCodec() = default;
  // The ids of a conversation, up to where the model's turn begins.
  virtual absl::StatusOr<std::vector<int32_t>> PromptIds(const Json& messages) const = 0;
  // A completion as people read it, without special tokens.
  virtual std::string Text(absl::Span<const int32_t> ids) const = 0;
};

struct SampleStreamOptions {
  SamplingParams defaults;          // what a request does not say
  int64_t max_waiting_lines = 256;  // lines that are read ahead of the oldest one that is not answered yet
};

// Serves `in` up to its end. Aborted at the end if lines were answered by an error; Unavailable if `out` is gone.
absl::Status ServeSamples(rollout::Engine& engine, const PromptCodec& codec, const SampleStreamOptions& options,
                          std::istream& in, std::ostream& out);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_SAMPLE_STREAM_H_
