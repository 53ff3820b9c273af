// The text side of a model: tokenizer, chat template, and what commands and runs take from them alike.
#ifndef LOCKSTEP_RUNTIME_JOB_TEXT_MODEL_H_
#define LOCKSTEP_RUNTIME_JOB_TEXT_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/model_config.h"
#include "rollout/engine.h"
#include "runtime/base/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep::job {

// Immutable, so thread-safe.
struct TextModel {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;  // nullptr if the model has none

  // A conversation as ids, up to where the model's turn begins. InvalidArgument without a chat template.
  absl::StatusOr<std::vector<int32_t>> PromptIds(const Json& messages) const;
};

absl::StatusOr<TextModel> LoadTextModel(const std::string& path);

// InvalidArgument if the tokenizer has ids that the model has no row for.
absl::Status CheckVocabulary(const text::Tokenizer& tokenizer, const model::ModelConfig& config);

// Ids that end a completion where nobody says which: the model's, or else the tokenizer's.
std::vector<int32_t> DefaultStopIds(const text::Tokenizer& tokenizer, const model::ModelConfig& config);

// Stop texts of a completion, watched in its decoded text. The tokenizer must outlive what the factory makes.
rollout::StopWatcherFactory StopWatchers(const text::Tokenizer& tokenizer);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_TEXT_MODEL_H_
