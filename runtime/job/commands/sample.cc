// `sample`: completions of prompts, as JSON lines.
#include <memory>

#include "runtime/base/status.h"
#include "runtime/job/commands.h"
#include "runtime/job/sample_stream.h"
#include "runtime/job/sampler.h"
#include "runtime/job/text_model.h"

namespace lockstep::job {
namespace {

class ModelCodec final : public PromptCodec {
 public:
  explicit ModelCodec(const TextModel& text) : text_(text) {}

  absl::StatusOr<std::vector<int32_t>> PromptIds(const Json& messages) const override {
    return text_.PromptIds(messages);
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
  options.matmul = args.model.matmul;
  options.max_batch = args.max_batch;
  options.max_context_tokens = args.max_context_tokens;
  ASSIGN_OR_RETURN(const std::unique_ptr<Sampler> sampler,
                   Sampler::Load(args.model.model, options, StopWatchers(*text.tokenizer)));
  SampleStreamOptions stream;
  stream.defaults.stop_ids = DefaultStopIds(*text.tokenizer, sampler->config());
  return ServeSamples(sampler->engine(), ModelCodec(text), stream, in, out);
}

}  // namespace lockstep::job
