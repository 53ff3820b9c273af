#include "model/load.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "model/load_gguf.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/gguf.h"
#include "runtime/formats/safetensors.h"

namespace lockstep::model {
namespace {

namespace fs = std::filesystem;
using formats::SafetensorsFile;
using formats::SafetensorsTensor;
using Entry = ParameterLayout::Entry;

constexpr char kHead[] = "lm_head.weight";
constexpr char kEmbedding[] = "model.embed_tokens.weight";

absl::StatusOr<Json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  auto json = ParseJson(text);
  if (!json.ok()) return AddContext(json.status(), path);
  if (!json->is_object()) return absl::InvalidArgumentError(path + ": not a JSON object");
  return json;
}

// transformers ends generation at the ids of generation_config.json where that file has them.
absl::Status ApplyGenerationConfig(const std::string& path, ModelConfig& config) {
  if (!fs::exists(path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  if (!json.contains("eos_token_id") || json["eos_token_id"].is_null()) return absl::OkStatus();
  const Json& eos = json["eos_token_id"];
  std::vector<int64_t> ids;
  for (const Json& id : eos.is_array() ? eos : Json::array({eos})) {
    if (!id.is_number_integer()) return absl::InvalidArgumentError(path + ": eos_token_id is not an integer");
    ids.push_back(id.get<int64_t>());
  }
  config.eos_token_ids = std::move(ids);
  return AddContext(Validate(config), path);
}

absl::StatusOr<ModelConfig> LoadFolderConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!fs::exists(path)) {
    return absl::NotFoundError(absl::StrCat(folder, ": not a model folder: it has no config.json"));
  }
  ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  absl::StatusOr<ModelConfig> config = ParseHfConfig(json);
  if (!config.ok()) return AddContext(config.status(), folder);
  RETURN_IF_ERROR(ApplyGenerationConfig(folder + "/generation_config.json", *config));
  return config;
}

// The open weight files of a folder. Where an index exists, it says which file holds which tensor.
struct Shards {
  std::vector<SafetensorsFile> files;
  std::map<std::string, const SafetensorsTensor*> tensors;
  std::map<std::string, std::string> origin;  // tensor -> path, for messages
};

absl::Status AddShard(const std::string& path, Shards& shards) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (!shards.tensors.emplace(tensor.name, &tensor).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor ", tensor.name, " is also in ", shards.origin[tensor.name]));
    }
    shards.origin.emplace(tensor.name, path);
  }
  shards.files.push_back(std::move(file));  // moving keeps the tensors where they are
  return absl::OkStatus();
}

absl::Status OpenIndexed(const std::string& folder, const std::string& index_path, Shards& shards) {
  ASSIGN_OR_RETURN(const Json index, ReadJson(index_path));
  if (!index.contains("weight_map") || !index["weight_map"].is_object()) {
    return absl::InvalidArgumentError(index_path + ": weight_map is missing");
  }
  std::map<std::string, std::string> weight_map;
  std::set<std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>()) {
      return absl::InvalidArgumentError(
          absl::StrCat(index_path, ": tensor ", name, ": ", DumpJson(file), " is not a file name in this folder"));
    }
    weight_map.emplace(name, file.get<std::string>());
    files.insert(file.get<std::string>());
  }
  for (const std::string& file : files) RETURN_IF_ERROR(AddShard(absl::StrCat(folder, "/", file), shards));
  for (const auto& [name, file] : weight_map) {
    const auto origin = shards.origin.find(name);
    if (origin == shards.origin.end() || fs::path(origin->second).filename() != file) {
      return absl::InvalidArgumentError(
          absl::StrCat(index_path, ": tensor ", name, " is not in ", file, " as the index says"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Shards> OpenWeights(const std::string& folder) {
  Shards shards;
  const std::string single = folder + "/model.safetensors";
  const std::string index = folder + "/model.safetensors.index.json";
  if (fs::exists(single)) {
    RETURN_IF_ERROR(AddShard(single, shards));
  } else if (fs::exists(index)) {
    RETURN_IF_ERROR(OpenIndexed(folder, index, shards));
  } else {
    return absl::NotFoundError(absl::StrCat(
        folder, ": no weights: it has neither model.safetensors nor model.safetensors.index.json",
        fs::exists(folder + "/pytorch_model.bin") ? " (save pytorch_model.bin again as safetensors)" : ""));
  }
  return shards;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

bool IsIgnored(const std::string& name, const ModelConfig& config) {
  return absl::EndsWith(name, ".rotary_emb.inv_freq") || (name == kHead && config.tie_word_embeddings);
}

// Every parameter is there with its shape and a dtype that converts, and nothing else is.
absl::Status CheckTensors(const std::string& folder, const Shards& shards, const ModelConfig& config,
                          const ParameterLayout& layout) {
  using formats::SafetensorsDType;
  for (const Entry& entry : layout.entries()) {
    const auto found = shards.tensors.find(entry.name);
    if (found == shards.tensors.end()) {
      return absl::InvalidArgumentError(absl::StrCat(folder, ": tensor ", entry.name, " is missing"));
    }
    const SafetensorsTensor& tensor = *found->second;
    const std::string where = absl::StrCat(shards.origin.at(entry.name), ": tensor ", entry.name);
    if (tensor.shape != entry.shape) {
      return absl::InvalidArgumentError(absl::StrCat(where, " has the shape ", ShapeText(tensor.shape),
                                                     ", config.json asks for ", ShapeText(entry.shape)));
    }
    if (tensor.dtype != SafetensorsDType::kF32 && tensor.dtype != SafetensorsDType::kF16 &&
        tensor.dtype != SafetensorsDType::kBf16) {
      return absl::InvalidArgumentError(absl::StrCat(where, " is stored as ", SafetensorsDTypeName(tensor.dtype),
                                                     "; weights may be F32, F16 or BF16"));
    }
  }
  for (const auto& [name, path] : shards.origin) {
    if (layout.Find(name) != nullptr || IsIgnored(name, config)) continue;
    return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", name, " is unexpected: a ",
                                                   ArchitectureName(config.architecture), " model has none"));
  }
  return absl::OkStatus();
}

// Files of tied models may carry the head again; a different one would be silently lost.
absl::Status CheckTiedHead(const Shards& shards, const ModelConfig& config, const Parameters& parameters) {
  const auto found = shards.tensors.find(kHead);
  if (!config.tie_word_embeddings || found == shards.tensors.end()) return absl::OkStatus();
  const Entry& embedding = parameters.layout().Get(kEmbedding);
  const auto differs = [&] {
    return absl::InvalidArgumentError(absl::StrCat(shards.origin.at(kHead), ": tensor ", kHead, " differs from ",
                                                   kEmbedding, " although tie_word_embeddings is true"));
  };
  if (found->second->shape != embedding.shape) return differs();
  std::vector<float> head(static_cast<size_t>(embedding.size));
  RETURN_IF_ERROR(ToFloat(*found->second, head.data()));
  const float* expected = parameters.Get(kEmbedding);
  return std::memcmp(head.data(), expected, head.size() * sizeof(float)) == 0 ? absl::OkStatus() : differs();
}

absl::StatusOr<LoadedModel> LoadFolder(const std::string& folder) {
  LoadedModel model;
  ASSIGN_OR_RETURN(model.config, LoadFolderConfig(folder));
  ASSIGN_OR_RETURN(const Shards shards, OpenWeights(folder));
  const auto layout = std::make_shared<const ParameterLayout>(model.config);
  RETURN_IF_ERROR(CheckTensors(folder, shards, model.config, *layout));
  model.parameters = Parameters(layout);
  for (const Entry& entry : layout->entries()) {
    RETURN_IF_ERROR(ToFloat(*shards.tensors.at(entry.name), model.parameters.data() + entry.offset));
  }
  RETURN_IF_ERROR(CheckTiedHead(shards, model.config, model.parameters));
  return model;
}

// What a path is, or why it is neither.
absl::StatusOr<bool> IsFolder(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return true;
  if (!fs::exists(status)) return absl::NotFoundError(absl::StrCat(path, ": no such model folder or file"));
  if (absl::EndsWithIgnoreCase(path, ".gguf")) return false;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": a model is a Hugging Face folder (config.json, model.safetensors) or a .gguf file"));
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const std::string& path) {
  ASSIGN_OR_RETURN(const bool is_folder, IsFolder(path));
  if (is_folder) return LoadFolder(path);
  ASSIGN_OR_RETURN(const formats::GgufFile file, formats::GgufFile::Open(path));
  return LoadGguf(file);
}

absl::StatusOr<ModelConfig> LoadConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const bool is_folder, IsFolder(path));
  if (is_folder) return LoadFolderConfig(path);
  ASSIGN_OR_RETURN(const formats::GgufFile file, formats::GgufFile::Open(path));
  return ParseGgufConfig(file);
}

}  // namespace lockstep::model
