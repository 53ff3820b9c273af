#include "model/load_gguf.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace lockstep::model {
namespace {

using formats::GgufFile;
using formats::GgufTensor;
using Entry = ParameterLayout::Entry;

constexpr std::pair<const char*, const char*> kTopNames[] = {
    {"lm_head.weight", "output.weight"},
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
};

// Within a layer: HF "model.layers.N.<first>" is GGUF "blk.N.<second>"; ".weight" or ".bias" follows.
constexpr std::pair<const char*, const char*> kLayerNames[] = {
    {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},       {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
};

std::string GgufName(const std::string& hf_name) {
  for (const auto& [hf, gguf] : kTopNames) {
    if (hf_name == hf) return gguf;
  }
  const size_t number_at = std::strlen("model.layers.");
  const size_t dot = hf_name.find('.', number_at);
  const size_t suffix = hf_name.rfind('.');
  const std::string part = hf_name.substr(dot + 1, suffix - dot - 1);
  for (const auto& [hf, gguf] : kLayerNames) {
    if (part == hf) {
      return absl::StrCat("blk.", hf_name.substr(number_at, dot - number_at), ".", gguf, hf_name.substr(suffix));
    }
  }
  CheckFailed(__FILE__, __LINE__, "every parameter has a GGUF name", hf_name);
}

absl::Status CheckTensors(const GgufFile& file, const ParameterLayout& layout) {
  size_t num_used = 0;
  for (const Entry& entry : layout.entries()) {
    const std::string name = GgufName(entry.name);
    const GgufTensor* tensor = file.Find(name);
    if (tensor == nullptr)
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ", name, " is missing"));
    if (tensor->shape != entry.shape) {
      std::string text;
      for (const int64_t dim : tensor->shape) absl::StrAppend(&text, text.empty() ? "" : ", ", dim);
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": tensor ", name, " has the shape [", text, "], the metadata asks for [",
                       entry.shape.front(), entry.shape.size() == 2 ? absl::StrCat(", ", entry.cols()) : "", "]"));
    }
    ++num_used;
  }
  if (file.Find("rope_freqs.weight") != nullptr) ++num_used;  // read with the configuration
  if (num_used == file.tensors().size()) return absl::OkStatus();
  std::vector<std::string> expected = {"rope_freqs.weight"};
  for (const Entry& entry : layout.entries()) expected.push_back(GgufName(entry.name));
  std::sort(expected.begin(), expected.end());
  for (const GgufTensor& tensor : file.tensors()) {
    if (!std::binary_search(expected.begin(), expected.end(), tensor.name)) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ",
                                                     absl::CHexEscape(tensor.name.substr(0, 120)),
                                                     " is unexpected: such a model has none"));
    }
  }
  return absl::OkStatus();
}

// llama-architecture files hold the rows of a head for RoPE over neighbours (2i, 2i + 1); HF rotates halves (i, i +
// D/2). So row h*D + 2i + s of the file is row h*D + s*D/2 + i here.
void UnpermuteRows(const std::vector<float>& from, int64_t head_dim, const Entry& entry, float* to) {
  const int64_t half = head_dim / 2;
  const auto row_bytes = static_cast<size_t>(entry.cols()) * sizeof(float);
  for (int64_t head = 0; head < entry.rows() / head_dim; ++head) {
    for (int64_t i = 0; i < half; ++i) {
      for (int64_t side = 0; side < 2; ++side) {
        const int64_t source = head * head_dim + 2 * i + side;
        const int64_t target = head * head_dim + side * half + i;
        std::memcpy(to + target * entry.cols(), from.data() + source * entry.cols(), row_bytes);
      }
    }
  }
}

bool IsPermuted(const ModelConfig& config, const Entry& entry) {
  return config.architecture == Architecture::kLlama && (absl::EndsWith(entry.name, ".self_attn.q_proj.weight") ||
                                                         absl::EndsWith(entry.name, ".self_attn.k_proj.weight"));
}

}  // namespace

absl::StatusOr<LoadedModel> LoadGguf(const GgufFile& file) {
  LoadedModel model;
  ASSIGN_OR_RETURN(model.config, ParseGgufConfig(file));
  const auto layout = std::make_shared<const ParameterLayout>(model.config);
  RETURN_IF_ERROR(CheckTensors(file, *layout));
  model.parameters = Parameters(layout);
  std::vector<float> stored;
  for (const Entry& entry : layout->entries()) {
    const GgufTensor& tensor = *file.Find(GgufName(entry.name));
    float* out = model.parameters.data() + entry.offset;
    if (IsPermuted(model.config, entry)) {
      stored.resize(static_cast<size_t>(entry.size));
      RETURN_IF_ERROR(ToFloat(tensor, stored.data()));
      UnpermuteRows(stored, model.config.head_dim, entry, out);
    } else {
      RETURN_IF_ERROR(ToFloat(tensor, out));
    }
  }
  return model;
}

}  // namespace lockstep::model
