#include "model/export.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/safetensors.h"

namespace lockstep::model {
namespace {

namespace fs = std::filesystem;
using Entry = ParameterLayout::Entry;

constexpr char kIndexName[] = "model.safetensors.index.json";

// Consecutive entries that share a file.
struct Shard {
  std::string file_name;
  std::vector<const Entry*> entries;
};

std::vector<Shard> CutShards(const ParameterLayout& layout, int64_t element_bytes, int64_t max_shard_bytes) {
  std::vector<Shard> shards;
  int64_t bytes = 0;
  for (const Entry& entry : layout.entries()) {
    const int64_t entry_bytes = entry.size * element_bytes;
    if (shards.empty() || bytes + entry_bytes > max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().entries.push_back(&entry);
    bytes += entry_bytes;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file_name = shards.size() == 1 ? "model.safetensors"
                                             : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
  }
  return shards;
}

absl::Status AppendBf16(const float* values, int64_t count, formats::SafetensorsWriter& writer) {
  constexpr int64_t kChunk = 1 << 18;
  std::vector<Bf16> chunk(static_cast<size_t>(std::min(count, kChunk)));
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t size = std::min(kChunk, count - begin);
    std::transform(values + begin, values + begin + size, chunk.begin(), ToBf16);
    RETURN_IF_ERROR(writer.Append(chunk.data(), static_cast<size_t>(size) * sizeof(Bf16)));
  }
  return absl::OkStatus();
}

absl::Status WriteShard(const Shard& shard, const Parameters& parameters, DType dtype, const std::string& folder) {
  const auto stored = dtype == DType::kF32 ? formats::SafetensorsDType::kF32 : formats::SafetensorsDType::kBf16;
  std::vector<formats::SafetensorsSpec> specs;
  for (const Entry* entry : shard.entries) specs.push_back({entry->name, stored, entry->shape});
  ASSIGN_OR_RETURN(
      formats::SafetensorsWriter writer,
      formats::SafetensorsWriter::Create(absl::StrCat(folder, "/", shard.file_name), specs, {{"format", "pt"}}));
  for (const Entry* entry : shard.entries) {
    const float* values = parameters.data() + entry->offset;
    if (dtype == DType::kF32) {
      RETURN_IF_ERROR(writer.Append(values, static_cast<size_t>(entry->size) * sizeof(float)));
    } else {
      RETURN_IF_ERROR(AppendBf16(values, entry->size, writer));
    }
  }
  return writer.Finish();
}

// An older index or shard beside the new files would be a second, different model in the same folder.
absl::Status RemoveOldWeights(const std::string& folder) {
  std::vector<fs::path> old;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || name == kIndexName || name == "model.safetensors" ||
        (absl::StartsWith(name, "model-") && absl::EndsWith(name, ".safetensors"))) {
      old.push_back(entry.path());
    }
  }
  for (const fs::path& path : old) {
    if (!error) fs::remove(path, error);
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot clear ", folder, ": ", error.message()));
  return absl::OkStatus();
}

absl::Status WriteIndex(const std::vector<Shard>& shards, int64_t total_bytes, const std::string& folder) {
  Json index;
  index["metadata"]["total_size"] = total_bytes;
  Json weight_map = Json::object();
  for (const Shard& shard : shards) {
    for (const Entry* entry : shard.entries) weight_map[entry->name] = shard.file_name;
  }
  index["weight_map"] = std::move(weight_map);
  return WriteFileDurably(absl::StrCat(folder, "/", kIndexName), index.dump(2) + "\n");
}

Json GenerationConfig(const Json& config_json) {
  Json json;
  json["_from_model_config"] = true;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (!config_json[key].is_null()) json[key] = config_json[key];
  }
  return json;
}

}  // namespace

absl::Status ExportHf(const ModelConfig& config, const Parameters& parameters, DType dtype, const std::string& folder,
                      int64_t max_shard_bytes) {
  CHECK(dtype == DType::kF32 || dtype == DType::kBf16);
  RETURN_IF_ERROR(MakeDirs(folder));
  RETURN_IF_ERROR(RemoveOldWeights(folder));
  const int64_t element_bytes = SizeOf(dtype);
  const std::vector<Shard> shards = CutShards(parameters.layout(), element_bytes, max_shard_bytes);
  for (const Shard& shard : shards) RETURN_IF_ERROR(WriteShard(shard, parameters, dtype, folder));
  if (shards.size() > 1) RETURN_IF_ERROR(WriteIndex(shards, parameters.size() * element_bytes, folder));
  const Json config_json = ToHfJson(config, dtype == DType::kF32 ? "float32" : "bfloat16");
  RETURN_IF_ERROR(WriteFileDurably(folder + "/generation_config.json", GenerationConfig(config_json).dump(2) + "\n"));
  return WriteFileDurably(folder + "/config.json", config_json.dump(2) + "\n");
}

}  // namespace lockstep::model
