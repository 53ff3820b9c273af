// `export`: any model that can be read, as a Hugging Face folder.
#include <memory>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "model/export.h"
#include "model/load.h"
#include "runtime/base/hash.h"
#include "runtime/base/status.h"
#include "runtime/job/commands.h"
#include "text/tokenizer.h"

namespace lockstep::job {

absl::Status ExportCommand(const ExportArgs& args, std::ostream& out) {
  ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, text::Tokenizer::Load(args.model));
  ASSIGN_OR_RETURN(const model::LoadedModel loaded, model::LoadModel(args.model));
  if (tokenizer->vocab_size() > loaded.config.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(args.model, ": the tokenizer has ", tokenizer->vocab_size(),
                                                   " tokens and the model only ", loaded.config.vocab_size,
                                                   ": they do not belong together"));
  }
  const DType dtype = args.dtype == "f32" ? DType::kF32 : DType::kBf16;
  RETURN_IF_ERROR(model::ExportHf(loaded.config, loaded.parameters, dtype, args.out));
  RETURN_IF_ERROR(tokenizer->WriteFiles(args.out));
  out << "exported " << loaded.parameters.size() << " parameters as " << args.dtype << " to " << args.out
      << ", weight hash " << HashToHex(loaded.parameters.Hash()) << "\n";
  return absl::OkStatus();
}

}  // namespace lockstep::job
