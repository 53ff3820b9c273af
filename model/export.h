// Writes a model as an HF folder that transformers loads with equal logits: config.json, generation_config.json,
// model.safetensors, or above max_shard_bytes model-0000i-of-0000n.safetensors with model.safetensors.index.json.
// Tokenizer files are written beside them by the text library.
//
// Each file is complete or absent (temporary file, fsync, rename) and config.json comes last, so a folder with
// config.json has all of its weights. Weight files that an earlier export left in the folder are removed. Errors are
// those of the file system. Thread contract: pure; one export per folder at a time.
#ifndef LOCKSTEP_MODEL_EXPORT_H_
#define LOCKSTEP_MODEL_EXPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "model/model_config.h"
#include "model/parameters.h"
#include "runtime/device/tensor.h"

namespace lockstep::model {

// `dtype` is kF32 (exact) or kBf16 (round to nearest even; half the size), CHECKed. A single parameter larger than
// max_shard_bytes gets a file of its own.
absl::Status ExportHf(const ModelConfig& config, const Parameters& parameters, DType dtype, const std::string& folder,
                      int64_t max_shard_bytes = 5'000'000'000);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_EXPORT_H_
