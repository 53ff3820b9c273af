// Weights out of an open GGUF file; used by model/load.h, and by tests and fuzzers that hold the file in memory.
#ifndef LOCKSTEP_MODEL_LOAD_GGUF_H_
#define LOCKSTEP_MODEL_LOAD_GGUF_H_

#include "absl/status/statusor.h"
#include "model/load.h"
#include "runtime/formats/gguf.h"

namespace lockstep::model {

// Errors as LoadModel.
absl::StatusOr<LoadedModel> LoadGguf(const formats::GgufFile& file);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_LOAD_GGUF_H_
