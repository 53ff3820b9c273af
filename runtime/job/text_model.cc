#include "runtime/job/text_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace lockstep::job {
namespace {

class TextStopWatcher final : public rollout::StopWatcher {
 public:
  TextStopWatcher(const text::Tokenizer& tokenizer, const std::vector<std::string>& stop)
      : decoder_(tokenizer), stop_(stop) {
    for (const std::string& text : stop) longest_ = std::max(longest_, text.size());
  }
  bool Add(int32_t token_id) override {
    // A stop text may begin in what came before, but not further back than its own length.
    const std::string fresh = decoder_.Add(token_id);
    const size_t from = text_.size() > longest_ ? text_.size() - longest_ : 0;
    text_ += fresh;
    return std::any_of(stop_.begin(), stop_.end(),
                       [&](const std::string& stop) { return text_.find(stop, from) != std::string::npos; });
  }

 private:
  text::StreamDecoder decoder_;
  const std::vector<std::string> stop_;
  size_t longest_ = 0;
  std::string text_;
};

}  // namespace

absl::StatusOr<std::vector<int32_t>> TextModel::PromptIds(const Json& messages) const {
  if (chat_template == nullptr) {
    return absl::InvalidArgumentError("the model has no chat template for \"messages\": give a text or ids");
  }
  ASSIGN_OR_RETURN(const std::string prompt, chat_template->Render(messages, Json(), true, Json()));
  return tokenizer->Encode(prompt, false);
}

absl::StatusOr<TextModel> LoadTextModel(const std::string& path) {
  TextModel text;
  ASSIGN_OR_RETURN(text.tokenizer, text::Tokenizer::Load(path));
  const std::string& source = text.tokenizer->chat_template_source();
  if (!source.empty()) {
    ASSIGN_OR_RETURN(text.chat_template,
                     text::ChatTemplate::Compile(source, {text.tokenizer->bos_token(), text.tokenizer->eos_token()}));
  }
  return text;
}

absl::Status CheckVocabulary(const text::Tokenizer& tokenizer, const model::ModelConfig& config) {
  if (tokenizer.vocab_size() <= config.vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the tokenizer has ", tokenizer.vocab_size(),
                                                 " tokens and the model only ", config.vocab_size,
                                                 ": they do not belong together"));
}

std::vector<int32_t> DefaultStopIds(const text::Tokenizer& tokenizer, const model::ModelConfig& config) {
  std::vector<int32_t> ids;
  for (int64_t id : config.eos_token_ids) ids.push_back(static_cast<int32_t>(id));
  if (ids.empty() && tokenizer.eos_id().has_value()) ids.push_back(*tokenizer.eos_id());
  return ids;
}

rollout::StopWatcherFactory StopWatchers(const text::Tokenizer& tokenizer) {
  return
      [&tokenizer](const std::vector<std::string>& stop) { return std::make_unique<TextStopWatcher>(tokenizer, stop); };
}

}  // namespace lockstep::job
