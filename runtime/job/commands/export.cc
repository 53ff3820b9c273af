// `export`: any model that can be read, as a Hugging Face folder.
#include <memory>
#include <ostream>

#include "model/export.h"
#include "model/load.h"
#include "runtime/base/hash.h"
#include "runtime/base/status.h"
#include "runtime/job/commands.h"
#include "runtime/job/text_model.h"

namespace lockstep::job {

absl::Status ExportCommand(const ExportArgs& args, std::ostream& out) {
  ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, text::Tokenizer::Load(args.model));
  ASSIGN_OR_RETURN(const model::LoadedModel loaded, model::LoadModel(args.model));
  RETURN_IF_ERROR(AddContext(CheckVocabulary(*tokenizer, loaded.config), args.model));
  const DType dtype = args.dtype == "f32" ? DType::kF32 : DType::kBf16;
  RETURN_IF_ERROR(model::ExportHf(loaded.config, loaded.parameters, dtype, args.out));
  RETURN_IF_ERROR(tokenizer->WriteFiles(args.out));
  out << "exported " << loaded.parameters.size() << " parameters as " << args.dtype << " to " << args.out
      << ", weight hash " << HashToHex(loaded.parameters.Hash()) << "\n";
  return absl::OkStatus();
}

}  // namespace lockstep::job
