#include "runtime/job/prompt_encoder.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/json.h"
#include "runtime/base/status.h"

namespace lockstep::job {

absl::StatusOr<EncodedPrompt> PromptEncoder::Encode(Prompt prompt) const {
  ASSIGN_OR_RETURN(const Json row, ParseJson(prompt.row_json));
  absl::StatusOr<std::vector<int32_t>> ids;
  if (row.contains("prompt")) {
    ids = text_.tokenizer->Encode(row["prompt"].get<std::string>(), false);
  } else {
    ids = text_.PromptIds(row["messages"]);
    if (!ids.ok()) return AddContext(ids.status(), prompt.location);
  }
  if (ids->empty()) return absl::InvalidArgumentError(absl::StrCat(prompt.location, ": the prompt is empty"));
  return EncodedPrompt{std::move(prompt), *std::move(ids)};
}

absl::Status PromptEncoder::CheckLength(const EncodedPrompt& prompt) const {
  if (Fits(prompt)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(prompt.prompt.location, ": the prompt has ", prompt.ids.size(),
                                                 " tokens and ", max_prompt_tokens_,
                                                 " are allowed: shorten it, raise data.max_prompt_tokens, or set "
                                                 "data.too_long to drop"));
}

}  // namespace lockstep::job
