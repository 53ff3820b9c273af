#include "model/model_config.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace lockstep::model {
namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError("model configuration: " + what); }

absl::Status CheckRange(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Bad(absl::StrCat(name, " is ", value, ", expected ", least, " to ", most));
}

absl::Status CheckSizes(const ModelConfig& config) {
  // Far above any model, and small enough that products of the sizes below stay within int64.
  constexpr int64_t kMaxWidth = int64_t{1} << 20;
  constexpr int64_t kMaxVocab = int64_t{1} << 24;
  RETURN_IF_ERROR(CheckRange("hidden_size", config.hidden_size, 1, kMaxWidth));
  RETURN_IF_ERROR(CheckRange("num_hidden_layers", config.num_layers, 1, 1 << 12));
  RETURN_IF_ERROR(CheckRange("num_attention_heads", config.num_heads, 1, 1 << 14));
  RETURN_IF_ERROR(CheckRange("num_key_value_heads", config.num_kv_heads, 1, config.num_heads));
  RETURN_IF_ERROR(CheckRange("head_dim", config.head_dim, 2, 1 << 12));
  RETURN_IF_ERROR(CheckRange("intermediate_size", config.intermediate_size, 1, kMaxWidth));
  RETURN_IF_ERROR(CheckRange("vocab_size", config.vocab_size, 1, kMaxVocab));
  RETURN_IF_ERROR(CheckRange("max_position_embeddings", config.max_position_embeddings, 1, int64_t{1} << 30));
  if (config.num_heads % config.num_kv_heads != 0) {
    return Bad(absl::StrCat("num_attention_heads (", config.num_heads, ") is not a multiple of num_key_value_heads (",
                            config.num_kv_heads, ")"));
  }
  if (config.head_dim % 2 != 0) return Bad(absl::StrCat("head_dim is ", config.head_dim, ": RoPE needs an even one"));
  return absl::OkStatus();
}

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }

absl::Status CheckRope(const RopeConfig& rope) {
  if (!IsPositive(rope.theta)) return Bad(absl::StrCat("rope_theta is ", rope.theta));
  if (rope.scaling == RopeConfig::Scaling::kNone) return absl::OkStatus();
  if (!std::isfinite(rope.factor) || rope.factor < 1) return Bad(absl::StrCat("rope factor is ", rope.factor));
  if (!IsPositive(rope.low_freq_factor) || !std::isfinite(rope.high_freq_factor) ||
      rope.high_freq_factor <= rope.low_freq_factor) {
    return Bad(absl::StrCat("rope low_freq_factor (", rope.low_freq_factor, ") must be positive and below ",
                            "high_freq_factor (", rope.high_freq_factor, ")"));
  }
  return CheckRange("rope original_max_position_embeddings", rope.original_max_position_embeddings, 1,
                    int64_t{1} << 30);
}

absl::Status CheckTokenIds(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckRange("bos_token_id", config.bos_token_id, -1, config.vocab_size - 1));
  RETURN_IF_ERROR(CheckRange("pad_token_id", config.pad_token_id, -1, config.vocab_size - 1));
  for (const int64_t id : config.eos_token_ids) {
    RETURN_IF_ERROR(CheckRange("eos_token_id", id, 0, config.vocab_size - 1));
  }
  return absl::OkStatus();
}

const char* HfClassName(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
      return "LlamaForCausalLM";
    case Architecture::kQwen2:
      return "Qwen2ForCausalLM";
    case Architecture::kQwen3:
      return "Qwen3ForCausalLM";
  }
  return "";
}

// The double with the fewest digits that is this float32: a file shall say 1e-05 and not 9.999999747378752e-06.
double ShortestDecimal(float value) {
  for (int digits = 6; digits < 9; ++digits) {
    const double candidate = std::strtod(absl::StrFormat("%.*g", digits, value).c_str(), nullptr);
    if (static_cast<float>(candidate) == value) return candidate;
  }
  return value;
}

// The flags that follow from the architecture.
void SetArchitecture(Architecture architecture, ModelConfig& config) {
  config.architecture = architecture;
  config.attention_bias = architecture == Architecture::kQwen2;
  config.qk_norm = architecture == Architecture::kQwen3;
}

}  // namespace

const char* ArchitectureName(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
      return "llama";
    case Architecture::kQwen2:
      return "qwen2";
    case Architecture::kQwen3:
      return "qwen3";
  }
  return "";
}

absl::Status Validate(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckSizes(config));
  RETURN_IF_ERROR(CheckRope(config.rope));
  RETURN_IF_ERROR(CheckTokenIds(config));
  if (!std::isfinite(config.rms_norm_eps) || config.rms_norm_eps < 0 || config.rms_norm_eps > 1) {
    return Bad(absl::StrCat("rms_norm_eps is ", config.rms_norm_eps));
  }
  ModelConfig expected;
  SetArchitecture(config.architecture, expected);
  if (config.attention_bias != expected.attention_bias) return Bad("attention_bias does not fit the architecture");
  if (config.qk_norm != expected.qk_norm) return Bad("qk_norm does not fit the architecture");
  return absl::OkStatus();
}

Json ToHfJson(const ModelConfig& config, const std::string& torch_dtype) {
  Json json;
  json["architectures"] = {HfClassName(config.architecture)};
  json["model_type"] = ArchitectureName(config.architecture);
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_layers;
  json["num_attention_heads"] = config.num_heads;
  json["num_key_value_heads"] = config.num_kv_heads;
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["rms_norm_eps"] = ShortestDecimal(config.rms_norm_eps);
  // Both spellings: transformers 4 reads rope_theta and rope_scaling, transformers 5 rope_parameters.
  json["rope_theta"] = config.rope.theta;
  Json scaling;
  if (config.rope.scaling == RopeConfig::Scaling::kLlama3) {
    scaling["rope_type"] = "llama3";
    scaling["factor"] = config.rope.factor;
    scaling["low_freq_factor"] = config.rope.low_freq_factor;
    scaling["high_freq_factor"] = config.rope.high_freq_factor;
    scaling["original_max_position_embeddings"] = config.rope.original_max_position_embeddings;
    json["rope_scaling"] = scaling;
  } else {
    json["rope_scaling"] = nullptr;
    scaling["rope_type"] = "default";
  }
  scaling["rope_theta"] = config.rope.theta;
  json["rope_parameters"] = scaling;
  json["attention_dropout"] = 0.0;
  if (config.architecture == Architecture::kLlama) json["mlp_bias"] = false;
  if (config.architecture != Architecture::kQwen2) json["attention_bias"] = false;
  if (config.architecture != Architecture::kLlama) {
    json["use_sliding_window"] = false;
    json["sliding_window"] = nullptr;
    json["max_window_layers"] = config.num_layers;
  }
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["bos_token_id"] = config.bos_token_id < 0 ? Json(nullptr) : Json(config.bos_token_id);
  json["eos_token_id"] = nullptr;
  if (config.eos_token_ids.size() == 1) json["eos_token_id"] = config.eos_token_ids.front();
  if (config.eos_token_ids.size() > 1) json["eos_token_id"] = config.eos_token_ids;
  json["pad_token_id"] = config.pad_token_id < 0 ? Json(nullptr) : Json(config.pad_token_id);
  json["initializer_range"] = 0.02;
  json["use_cache"] = true;
  json["torch_dtype"] = torch_dtype;
  json["dtype"] = torch_dtype;
  return json;
}

}  // namespace lockstep::model
