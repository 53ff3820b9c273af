// Reads a model from disk: an HF folder (config.json with model.safetensors, or sharded by
// model.safetensors.index.json) or one .gguf file. Weights become float32, whatever the file stores (F32, F16, BF16;
// GGUF also Q8_0, Q4_0, Q4_1).
//
// Strict: a missing, extra or mis-shaped tensor is an InvalidArgument error that names tensor and file. Accepted
// without use: a redundant lm_head equal to the tied embedding, rotary inv_freq buffers of old files, GGUF's
// rope_freqs. GGUF stores the Q and K rows of llama-architecture files permuted for interleaved RoPE; they are put back
// into HF order.
//
// Everything is checked against the configuration before the big allocation. Thread contract: pure functions.
#ifndef LOCKSTEP_MODEL_LOAD_H_
#define LOCKSTEP_MODEL_LOAD_H_

#include <string>

#include "absl/status/statusor.h"
#include "model/model_config.h"
#include "model/parameters.h"

namespace lockstep::model {

struct LoadedModel {
  ModelConfig config;
  Parameters parameters;
};

absl::StatusOr<LoadedModel> LoadModel(const std::string& path);

// The configuration only: a folder needs nothing but config.json (and, where there is one, generation_config.json for
// the end-of-text ids).
absl::StatusOr<ModelConfig> LoadConfig(const std::string& path);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_LOAD_H_
