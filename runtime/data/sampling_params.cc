#include "runtime/data/sampling_params.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace lockstep {

absl::Status SamplingParams::Validate() const {
  const auto bad = [](const char* field, auto value, const char* valid) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ": it must be ", valid));
  };
  if (!std::isfinite(temperature) || temperature < 0 || (temperature > 0 && temperature < 1e-3f)) {
    return bad("temperature", temperature, "0 (greedy) or at least 0.001");
  }
  if (top_k < 0) return bad("top_k", top_k, "0 (all) or positive");
  if (!(top_p > 0 && top_p <= 1)) return bad("top_p", top_p, "above 0 and at most 1");
  if (max_tokens < 1) return bad("max_tokens", max_tokens, "at least 1");
  if (min_tokens < 0 || min_tokens > max_tokens) return bad("min_tokens", min_tokens, "from 0 to max_tokens");
  for (int32_t id : stop_ids) {
    if (id < 0) return bad("stop_ids entry", id, "a token id");
  }
  for (const std::string& text : stop) {
    if (text.empty()) return absl::InvalidArgumentError("stop holds an empty text: every completion would end at once");
  }
  return absl::OkStatus();
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAborted:
      return "aborted";
  }
  return "?";
}

}  // namespace lockstep
