// `sample`: completions of prompts, as JSON lines.
#include <memory>
#include <nlohmann/json.hpp>

#include "runtime/base/status.h"
#include "runtime/job/commands.h"
#include "runtime/job/sample_stream.h"
#include "runtime/job/sampler.h"
#include "runtime/job/trainer.h"

namespace lockstep::job {
namespace {

class ModelCodec final : public PromptCodec {
 public:
  explicit ModelCodec(const TextModel& text) : text_(text) {}

  absl::StatusOr<std::vector<int32_t>> PromptIds(const Json& messages) const override {
    if (text_.chat_template == nullptr) {
      return absl::InvalidArgumentError("the model has no chat template: give \"ids\"");
    }
    ASSIGN_OR_RETURN(const std::string prompt, text_.chat_template->Render(messages, Json(), true, Json()));
    return text_.tokenizer->Encode(prompt, false);
  }
  std::string Text(absl::Span<const int32_t> ids) const override {
    return text_.tokenizer->Decode(ids, /*skip_special_tokens=*/true);
  }

 private:
  const TextModel& text_;
};

}  // namespace

absl::Status SampleCommand(const SampleArgs& args, std::istream& in, std::ostream& out) {
  ASSIGN_OR_RETURN(const TextModel text, LoadTextModel(args.model.model));
  SamplerOptions options;
  options.dtype = args.model.dtype == "f32" ? DType::kF32 : DType::kBf16;
  options.threads = args.model.threads;
  options.max_batch = args.max_batch;
  options.max_context_tokens = args.max_context_tokens;
  ASSIGN_OR_RETURN(const std::unique_ptr<Sampler> sampler,
                   Sampler::Load(args.model.model, options, StopWatchers(*text.tokenizer)));
  SampleStreamOptions stream;
  for (int64_t id : sampler->config().eos_token_ids) stream.defaults.stop_ids.push_back(static_cast<int32_t>(id));
  if (stream.defaults.stop_ids.empty() && text.tokenizer->eos_id().has_value()) {
    stream.defaults.stop_ids.push_back(*text.tokenizer->eos_id());
  }
  return ServeSamples(sampler->engine(), ModelCodec(text), stream, in, out);
}

}  // namespace lockstep::job
