// The configuration in GGUF metadata.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "model/model_config.h"
#include "runtime/base/status.h"
#include "runtime/formats/gguf.h"

namespace lockstep::model {
namespace {

using formats::GgufFile;
using formats::GgufTensor;

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {}

  absl::StatusOr<ModelConfig> Run() {
    ModelConfig config;
    RETURN_IF_ERROR(ReadArchitecture(config));
    RETURN_IF_ERROR(ReadSizes(config));
    RETURN_IF_ERROR(ReadVocabulary(config));
    RETURN_IF_ERROR(RefuseForeignFeatures(config));
    RETURN_IF_ERROR(ReadRope(config));
    RETURN_IF_ERROR(AddContext(Validate(config), file_.path()));
    return config;
  }

 private:
  absl::Status Unsupported(const std::string& what) const {
    return absl::UnimplementedError(absl::StrCat(file_.path(), ": ", what, " is not supported"));
  }
  std::string Key(const char* name) const { return absl::StrCat(prefix_, name); }

  // An absent key gives the fallback, or NotFound without one.
  absl::Status Int(const std::string& key, std::optional<int64_t> fallback, int64_t* out) const {
    if (fallback.has_value() && !file_.Has(key)) {
      *out = *fallback;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(*out, file_.GetInt(key));
    return absl::OkStatus();
  }
  absl::Status Float(const std::string& key, std::optional<double> fallback, double* out) const {
    if (fallback.has_value() && !file_.Has(key)) {
      *out = *fallback;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(*out, file_.GetFloat(key));
    return absl::OkStatus();
  }

  absl::Status ReadArchitecture(ModelConfig& config) {
    ASSIGN_OR_RETURN(const std::string name, file_.GetString("general.architecture"));
    for (const Architecture architecture : {Architecture::kLlama, Architecture::kQwen2, Architecture::kQwen3}) {
      if (name != ArchitectureName(architecture)) continue;
      config.architecture = architecture;
      config.attention_bias = architecture == Architecture::kQwen2;
      config.qk_norm = architecture == Architecture::kQwen3;
      prefix_ = name + ".";
      return absl::OkStatus();
    }
    return Unsupported(
        absl::StrCat("the architecture '", absl::CHexEscape(name.substr(0, 60)), "' (known: llama, qwen2, qwen3)"));
  }

  absl::Status ReadSizes(ModelConfig& config) const {
    RETURN_IF_ERROR(Int(Key("embedding_length"), std::nullopt, &config.hidden_size));
    RETURN_IF_ERROR(Int(Key("block_count"), std::nullopt, &config.num_layers));
    RETURN_IF_ERROR(Int(Key("feed_forward_length"), std::nullopt, &config.intermediate_size));
    RETURN_IF_ERROR(Int(Key("context_length"), std::nullopt, &config.max_position_embeddings));
    RETURN_IF_ERROR(Int(Key("attention.head_count"), std::nullopt, &config.num_heads));
    RETURN_IF_ERROR(Int(Key("attention.head_count_kv"), config.num_heads, &config.num_kv_heads));
    if (config.num_heads < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_.path(), ": ", Key("attention.head_count"), " is ", config.num_heads));
    }
    RETURN_IF_ERROR(Int(Key("attention.key_length"), config.hidden_size / config.num_heads, &config.head_dim));
    int64_t value_length = 0;
    RETURN_IF_ERROR(Int(Key("attention.value_length"), config.head_dim, &value_length));
    if (value_length != config.head_dim) return Unsupported("a value length other than the key length");
    double epsilon = 0;
    RETURN_IF_ERROR(Float(Key("attention.layer_norm_rms_epsilon"), std::nullopt, &epsilon));
    config.rms_norm_eps = static_cast<float>(epsilon);
    config.tie_word_embeddings = file_.Find("output.weight") == nullptr;
    return absl::OkStatus();
  }

  // The embedding decides; the tokenizer's list may be shorter (padded vocabularies).
  absl::Status ReadVocabulary(ModelConfig& config) const {
    const GgufTensor* embedding = file_.Find("token_embd.weight");
    if (embedding == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": tensor token_embd.weight is missing"));
    }
    if (embedding->shape.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": tensor token_embd.weight is not a matrix"));
    }
    config.vocab_size = embedding->shape.front();
    int64_t declared = 0;
    RETURN_IF_ERROR(Int(Key("vocab_size"), config.vocab_size, &declared));
    if (declared != config.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": tensor token_embd.weight has ", config.vocab_size,
                                                     " rows, but ", Key("vocab_size"), " is ", declared));
    }
    RETURN_IF_ERROR(Int("tokenizer.ggml.bos_token_id", -1, &config.bos_token_id));
    RETURN_IF_ERROR(Int("tokenizer.ggml.padding_token_id", -1, &config.pad_token_id));
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
      int64_t id = -1;
      RETURN_IF_ERROR(Int(key, -1, &id));
      const auto& ids = config.eos_token_ids;
      if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) config.eos_token_ids.push_back(id);
    }
    return absl::OkStatus();
  }

  absl::Status RefuseForeignFeatures(const ModelConfig& config) const {
    int64_t value = 0;
    RETURN_IF_ERROR(Int(Key("expert_count"), 0, &value));
    if (value != 0) return Unsupported("a mixture of experts");
    RETURN_IF_ERROR(Int(Key("attention.sliding_window"), 0, &value));
    if (value != 0) return Unsupported("a sliding window");
    RETURN_IF_ERROR(Int(Key("rope.dimension_count"), config.head_dim, &value));
    if (value != config.head_dim) return Unsupported(absl::StrCat("RoPE over ", value, " of ", config.head_dim));
    return absl::OkStatus();
  }

  absl::Status ReadRope(ModelConfig& config) const {
    RETURN_IF_ERROR(Float(Key("rope.freq_base"), 10000.0, &config.rope.theta));
    if (file_.Has(Key("rope.scaling.type"))) {
      const absl::StatusOr<std::string> type = file_.GetString(Key("rope.scaling.type"));
      if (!type.ok()) return type.status();
      if (*type != "none")
        return Unsupported(absl::StrCat("the rope scaling '", absl::CHexEscape(type->substr(0, 60)), "'"));
    }
    double scale = 1;
    RETURN_IF_ERROR(Float(Key("rope.scale_linear"), 1.0, &scale));
    if (scale != 1) return Unsupported("linear rope scaling");
    const GgufTensor* factors = file_.Find("rope_freqs.weight");
    return factors == nullptr ? absl::OkStatus() : RecoverLlama3(*factors, config);
  }

  // GGUF keeps of the llama3 scaling only the divisor of each frequency. Its parameters are recovered from the largest
  // divisor and the constants that every published model uses, and then have to give the same divisors again.
  absl::Status RecoverLlama3(const GgufTensor& tensor, ModelConfig& config) const {
    if (tensor.num_elements != config.head_dim / 2) {
      return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": tensor rope_freqs.weight has ",
                                                     tensor.num_elements, " entries, expected ", config.head_dim / 2));
    }
    std::vector<float> stored(static_cast<size_t>(tensor.num_elements));
    RETURN_IF_ERROR(ToFloat(tensor, stored.data()));
    RopeConfig& rope = config.rope;
    rope.scaling = RopeConfig::Scaling::kLlama3;
    rope.factor = *std::max_element(stored.begin(), stored.end());
    rope.low_freq_factor = 1;
    rope.high_freq_factor = 4;
    rope.original_max_position_embeddings = 8192;
    for (size_t i = 0; i < stored.size(); ++i) {
      const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim);
      const double divisor = Llama3Divisor(rope, std::pow(rope.theta, -exponent));
      if (!(std::abs(stored[i] - divisor) <= 1e-4 * divisor)) {
        return Unsupported("a rope_freqs.weight that is not Llama 3's");
      }
    }
    return absl::OkStatus();
  }

  // By how much the frequency (radians a position) is divided.
  static double Llama3Divisor(const RopeConfig& rope, double frequency) {
    const double turns =
        static_cast<double>(rope.original_max_position_embeddings) * frequency / (2 * std::numbers::pi);
    if (turns > rope.high_freq_factor) return 1;
    if (turns < rope.low_freq_factor) return rope.factor;
    const double smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    return 1 / ((1 - smooth) / rope.factor + smooth);
  }

  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace

absl::StatusOr<ModelConfig> ParseGgufConfig(const GgufFile& file) { return Reader(file).Run(); }

}  // namespace lockstep::model
