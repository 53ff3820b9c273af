// config.json of Hugging Face folders, in the spelling of transformers 4 (rope_theta, rope_scaling, torch_dtype) and 5
// (rope_parameters, dtype).
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "model/model_config.h"
#include "runtime/base/status.h"

namespace lockstep::model {
namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError("config.json: " + what); }
absl::Status Unsupported(const std::string& what) {
  return absl::UnimplementedError(absl::StrCat("config.json: ", what, " is not supported"));
}

bool IsAbsent(const Json& object, const char* key) { return !object.contains(key) || object[key].is_null(); }

absl::Status GetNumber(const Json& object, const char* key, std::optional<double> fallback, double* out) {
  if (IsAbsent(object, key)) {
    if (!fallback.has_value()) return Bad(absl::StrCat(key, " is missing"));
    *out = *fallback;
    return absl::OkStatus();
  }
  if (!object[key].is_number()) return Bad(absl::StrCat(key, " is ", DumpJson(object[key]), ", not a number"));
  *out = object[key].get<double>();
  return absl::OkStatus();
}

bool ToInt(const Json& value, int64_t* out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  *out = value.get<int64_t>();
  return true;
}

absl::Status GetInt(const Json& object, const char* key, std::optional<int64_t> fallback, int64_t* out) {
  if (IsAbsent(object, key)) {
    if (!fallback.has_value()) return Bad(absl::StrCat(key, " is missing"));
    *out = *fallback;
    return absl::OkStatus();
  }
  if (!ToInt(object[key], out)) return Bad(absl::StrCat(key, " is ", DumpJson(object[key]), ", not an integer"));
  return absl::OkStatus();
}

absl::Status GetBool(const Json& object, const char* key, bool fallback, bool* out) {
  *out = fallback;
  if (IsAbsent(object, key)) return absl::OkStatus();
  if (!object[key].is_boolean()) return Bad(absl::StrCat(key, " is ", DumpJson(object[key]), ", not true or false"));
  *out = object[key].get<bool>();
  return absl::OkStatus();
}

absl::Status ReadArchitecture(const Json& json, ModelConfig& config) {
  if (IsAbsent(json, "model_type") || !json["model_type"].is_string()) return Bad("model_type is missing");
  const auto& name = json["model_type"].get_ref<const std::string&>();
  for (const Architecture architecture : {Architecture::kLlama, Architecture::kQwen2, Architecture::kQwen3}) {
    if (name == ArchitectureName(architecture)) {
      config.architecture = architecture;
      config.attention_bias = architecture == Architecture::kQwen2;
      config.qk_norm = architecture == Architecture::kQwen3;
      return absl::OkStatus();
    }
  }
  return Unsupported(absl::StrCat("model_type ", DumpJson(json["model_type"]), " (known: llama, qwen2, qwen3)"));
}

absl::Status ReadSizes(const Json& json, ModelConfig& config) {
  RETURN_IF_ERROR(GetInt(json, "hidden_size", std::nullopt, &config.hidden_size));
  RETURN_IF_ERROR(GetInt(json, "num_hidden_layers", std::nullopt, &config.num_layers));
  RETURN_IF_ERROR(GetInt(json, "num_attention_heads", std::nullopt, &config.num_heads));
  RETURN_IF_ERROR(GetInt(json, "intermediate_size", std::nullopt, &config.intermediate_size));
  RETURN_IF_ERROR(GetInt(json, "vocab_size", std::nullopt, &config.vocab_size));
  if (config.num_heads < 1) return Bad(absl::StrCat("num_attention_heads is ", config.num_heads));
  // What transformers takes for a key that an older file leaves out.
  const bool is_llama = config.architecture == Architecture::kLlama;
  const int64_t default_head_dim =
      config.architecture == Architecture::kQwen3 ? 128 : config.hidden_size / config.num_heads;
  if (is_llama) {
    RETURN_IF_ERROR(GetInt(json, "num_key_value_heads", config.num_heads, &config.num_kv_heads));
  } else {
    RETURN_IF_ERROR(GetInt(json, "num_key_value_heads", std::nullopt, &config.num_kv_heads));
  }
  RETURN_IF_ERROR(GetInt(json, "head_dim", default_head_dim, &config.head_dim));
  RETURN_IF_ERROR(GetInt(json, "max_position_embeddings", is_llama ? 2048 : 32768, &config.max_position_embeddings));
  double epsilon = 0;
  RETURN_IF_ERROR(GetNumber(json, "rms_norm_eps", 1e-6, &epsilon));
  config.rms_norm_eps = static_cast<float>(epsilon);
  return GetBool(json, "tie_word_embeddings", false, &config.tie_word_embeddings);
}

absl::Status ReadRopeObject(const Json& rope, const std::string& key, double default_theta, RopeConfig& out) {
  if (!rope.is_object()) return Bad(absl::StrCat(key, " is not an object"));
  for (const auto& [name, value] : rope.items()) {
    if (value.is_object()) return Unsupported(absl::StrCat(key, " by layer type (", name, ")"));
  }
  RETURN_IF_ERROR(GetNumber(rope, "rope_theta", default_theta, &out.theta));
  const char* type_key = IsAbsent(rope, "rope_type") ? "type" : "rope_type";
  const std::string type = IsAbsent(rope, type_key)     ? "default"
                           : rope[type_key].is_string() ? rope[type_key].get<std::string>()
                                                        : DumpJson(rope[type_key]);
  if (type == "default") return absl::OkStatus();
  if (type != "llama3") return Unsupported(absl::StrCat("the rope type ", type, " (known: default, llama3)"));
  out.scaling = RopeConfig::Scaling::kLlama3;
  RETURN_IF_ERROR(GetNumber(rope, "factor", std::nullopt, &out.factor));
  RETURN_IF_ERROR(GetNumber(rope, "low_freq_factor", std::nullopt, &out.low_freq_factor));
  RETURN_IF_ERROR(GetNumber(rope, "high_freq_factor", std::nullopt, &out.high_freq_factor));
  return GetInt(rope, "original_max_position_embeddings", std::nullopt, &out.original_max_position_embeddings);
}

// rope_parameters (5) and rope_theta with rope_scaling (4) say the same; where a file has both they must agree.
absl::Status ReadRope(const Json& json, ModelConfig& config) {
  double theta = 0;
  RETURN_IF_ERROR(GetNumber(json, "rope_theta", 10000.0, &theta));
  RopeConfig of_version4;
  of_version4.theta = theta;
  const bool has_scaling = !IsAbsent(json, "rope_scaling");
  if (has_scaling) RETURN_IF_ERROR(ReadRopeObject(json["rope_scaling"], "rope_scaling", theta, of_version4));
  config.rope = of_version4;
  if (IsAbsent(json, "rope_parameters")) return absl::OkStatus();
  config.rope = RopeConfig();
  RETURN_IF_ERROR(ReadRopeObject(json["rope_parameters"], "rope_parameters", theta, config.rope));
  if (!IsAbsent(json, "rope_theta") && theta != config.rope.theta) {
    return Bad(absl::StrCat("rope_theta is ", theta, " but rope_parameters.rope_theta is ", config.rope.theta));
  }
  of_version4.theta = config.rope.theta;
  if (has_scaling && of_version4 != config.rope) return Bad("rope_scaling and rope_parameters contradict each other");
  return absl::OkStatus();
}

absl::Status ReadTokenIds(const Json& json, ModelConfig& config) {
  RETURN_IF_ERROR(GetInt(json, "bos_token_id", -1, &config.bos_token_id));
  RETURN_IF_ERROR(GetInt(json, "pad_token_id", -1, &config.pad_token_id));
  // A pad id outside the vocabulary (-1 and the like) stands for none.
  if (config.pad_token_id < 0 || config.pad_token_id >= config.vocab_size) config.pad_token_id = -1;
  if (IsAbsent(json, "eos_token_id")) return absl::OkStatus();
  const Json& eos = json["eos_token_id"];
  const Json list = eos.is_array() ? eos : Json::array({eos});
  for (const Json& value : list) {
    int64_t id = 0;
    if (!ToInt(value, &id)) return Bad(absl::StrCat("eos_token_id has ", DumpJson(value), ", not an integer"));
    config.eos_token_ids.push_back(id);
  }
  return absl::OkStatus();
}

// Features that change what the model computes and that are not built here.
absl::Status RefuseForeignFeatures(const Json& json, const ModelConfig& config) {
  if (!IsAbsent(json, "hidden_act") && json["hidden_act"] != "silu") {
    return Unsupported(absl::StrCat("hidden_act ", DumpJson(json["hidden_act"]), " (known: silu)"));
  }
  bool flag = false;
  RETURN_IF_ERROR(GetBool(json, "attention_bias", config.attention_bias, &flag));
  if (flag != config.attention_bias) {
    return Unsupported(
        absl::StrCat("attention_bias ", flag ? "true" : "false", " for ", ArchitectureName(config.architecture)));
  }
  RETURN_IF_ERROR(GetBool(json, "mlp_bias", false, &flag));
  if (flag) return Unsupported("mlp_bias true");
  const bool is_llama = config.architecture == Architecture::kLlama;
  RETURN_IF_ERROR(GetBool(json, "use_sliding_window", is_llama && !IsAbsent(json, "sliding_window"), &flag));
  if (flag) return Unsupported("a sliding window");
  if (!IsAbsent(json, "layer_types")) {
    for (const Json& type : json["layer_types"]) {
      if (type != "full_attention") return Unsupported(absl::StrCat("the layer type ", DumpJson(type)));
    }
  }
  double rotary = 1;
  RETURN_IF_ERROR(GetNumber(json, "partial_rotary_factor", 1.0, &rotary));
  if (rotary == 1 && !IsAbsent(json, "rope_parameters")) {
    RETURN_IF_ERROR(GetNumber(json["rope_parameters"], "partial_rotary_factor", 1.0, &rotary));
  }
  if (rotary != 1) return Unsupported(absl::StrCat("partial_rotary_factor ", rotary));
  if (!IsAbsent(json, "quantization_config")) return Unsupported("quantization_config");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ParseHfConfig(const Json& config_json) {
  if (!config_json.is_object()) return Bad("it is not an object");
  ModelConfig config;
  RETURN_IF_ERROR(ReadArchitecture(config_json, config));
  RETURN_IF_ERROR(ReadSizes(config_json, config));
  RETURN_IF_ERROR(ReadRope(config_json, config));
  RETURN_IF_ERROR(RefuseForeignFeatures(config_json, config));
  RETURN_IF_ERROR(ReadTokenIds(config_json, config));
  RETURN_IF_ERROR(Validate(config));
  return config;
}

}  // namespace lockstep::model
