// Data rows as token ids: "messages" through the model's chat template, "prompt" as it stands.
#ifndef LOCKSTEP_RUNTIME_JOB_PROMPT_ENCODER_H_
#define LOCKSTEP_RUNTIME_JOB_PROMPT_ENCODER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/prompt.h"
#include "runtime/job/text_model.h"

namespace lockstep::job {

struct EncodedPrompt {
  Prompt prompt;
  std::vector<int32_t> ids;  // at least one
};

// Immutable, so thread-safe. The text model must outlive it.
class PromptEncoder {
 public:
  PromptEncoder(const TextModel& text, int64_t max_prompt_tokens)
      : text_(text), max_prompt_tokens_(max_prompt_tokens) {}

  // InvalidArgument, with file and line: an empty prompt, or one that the template refuses.
  absl::StatusOr<EncodedPrompt> Encode(Prompt prompt) const;

  // InvalidArgument, with file and line and what to do about it, if the prompt is longer than allowed.
  absl::Status CheckLength(const EncodedPrompt& prompt) const;
  bool Fits(const EncodedPrompt& prompt) const { return static_cast<int64_t>(prompt.ids.size()) <= max_prompt_tokens_; }

 private:
  const TextModel& text_;
  const int64_t max_prompt_tokens_;
};

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_PROMPT_ENCODER_H_
