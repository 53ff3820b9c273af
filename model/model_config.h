// What a model looks like: read from an HF folder's config.json (spelling of transformers 4 and 5) or from GGUF
// metadata.
//
// Supported: llama (rope scaling none or llama3), qwen2, qwen3; dense, SiLU-gated MLP, full attention, tied or untied
// head. Anything else (another architecture, a sliding window in use, another rope scaling, another activation, biases
// where the architecture has none here) is an Unimplemented error that names it: such a model would run and be wrong.
//
// Thread contract: plain data.
#ifndef LOCKSTEP_MODEL_MODEL_CONFIG_H_
#define LOCKSTEP_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/json.h"

namespace lockstep::formats {
class GgufFile;
}

namespace lockstep::model {

enum class Architecture : uint8_t { kLlama, kQwen2, kQwen3 };
const char* ArchitectureName(Architecture architecture);  // "llama", "qwen2", "qwen3": HF's model_type

struct RopeConfig {
  enum class Scaling : uint8_t { kNone, kLlama3 };
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  // kLlama3 only: wavelengths above original / low_freq_factor are stretched by factor, those below original /
  // high_freq_factor stay, those between are blended.
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 0;
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  RopeConfig rope;
  bool attention_bias = false;  // biases on q, k and v (qwen2), never on o
  bool qk_norm = false;         // RMSNorm with a gain of [head_dim] on each head of q and k before RoPE (qwen3)
  bool tie_word_embeddings = false;
  int64_t bos_token_id = -1;           // -1: none
  int64_t pad_token_id = -1;           // -1: none
  std::vector<int64_t> eos_token_ids;  // may be empty

  int64_t query_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// InvalidArgument names the field: sizes positive and below bounds that keep every product within int64, heads
// divisible, head_dim even, token ids inside the vocabulary, flags that fit the architecture.
absl::Status Validate(const ModelConfig& config);

// The three ways in and out. The parsers Validate. Messages name the key.
absl::StatusOr<ModelConfig> ParseHfConfig(const Json& config_json);
absl::StatusOr<ModelConfig> ParseGgufConfig(const formats::GgufFile& file);
// config.json that transformers 4 and 5 read; torch_dtype is what the weights are stored as: "float32" or "bfloat16".
Json ToHfJson(const ModelConfig& config, const std::string& torch_dtype);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_MODEL_CONFIG_H_
