#include "model/export.h"

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "model/load.h"
#include "runtime/base/file.h"
#include "runtime/formats/safetensors.h"
#include "tests/testing/shared_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::model {
namespace {

namespace fs = std::filesystem;
using ::lockstep::testing::TempDir;

LoadedModel Sample(Architecture architecture, bool tied) {
  LoadedModel model;
  ModelConfig& config = model.config;
  config.architecture = architecture;
  config.attention_bias = architecture == Architecture::kQwen2;
  config.qk_norm = architecture == Architecture::kQwen3;
  config.hidden_size = 8;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config.intermediate_size = 10;
  config.vocab_size = 20;
  config.max_position_embeddings = 32;
  config.tie_word_embeddings = tied;
  config.bos_token_id = 1;
  config.eos_token_ids = {2, 3};
  model.parameters = Parameters(config);
  for (int64_t i = 0; i < model.parameters.size(); ++i) {
    model.parameters.data()[i] = 1.0f / static_cast<float>(i + 3);
  }
  return model;
}

std::set<std::string> FilesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

TEST(ExportHf, ExactInFloat32) {
  for (const Architecture architecture : {Architecture::kLlama, Architecture::kQwen2, Architecture::kQwen3}) {
    for (const bool tied : {true, false}) {
      const TempDir dir;
      const LoadedModel model = Sample(architecture, tied);
      ASSERT_OK(ExportHf(model.config, model.parameters, DType::kF32, dir.File("out")));
      ASSERT_OK_AND_ASSIGN(const LoadedModel again, LoadModel(dir.File("out")));
      EXPECT_EQ(again.config, model.config);
      EXPECT_EQ(again.parameters.Hash(), model.parameters.Hash());
      EXPECT_EQ(FilesIn(dir.File("out")),
                (std::set<std::string>{"config.json", "generation_config.json", "model.safetensors"}));
    }
  }
}

TEST(ExportHf, RoundsToBfloat16) {
  const TempDir dir;
  const LoadedModel model = Sample(Architecture::kLlama, true);
  ASSERT_OK(ExportHf(model.config, model.parameters, DType::kBf16, dir.path()));
  ASSERT_OK_AND_ASSIGN(const LoadedModel again, LoadModel(dir.path()));
  for (int64_t i = 0; i < model.parameters.size(); ++i) {
    ASSERT_EQ(again.parameters.data()[i], ToFloat(ToBf16(model.parameters.data()[i])));
  }
  EXPECT_EQ((*ParseJson(*ReadFile(dir.File("config.json"))))["dtype"], "bfloat16");
  ASSERT_OK_AND_ASSIGN(const auto file, formats::SafetensorsFile::Open(dir.File("model.safetensors")));
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(ExportHf, CutsShardsAndReplacesAnEarlierExport) {
  const TempDir dir;
  const LoadedModel model = Sample(Architecture::kQwen3, false);
  ASSERT_OK(ExportHf(model.config, model.parameters, DType::kF32, dir.path()));
  const int64_t kShardBytes = 2000;
  ASSERT_OK(ExportHf(model.config, model.parameters, DType::kF32, dir.path(), kShardBytes));
  const std::set<std::string> files = FilesIn(dir.path());
  EXPECT_EQ(files.count("model.safetensors"), 0u);
  ASSERT_EQ(files.count("model.safetensors.index.json"), 1u);
  ASSERT_OK_AND_ASSIGN(const Json index, ParseJson(*ReadFile(dir.File("model.safetensors.index.json"))));
  EXPECT_EQ(index["metadata"]["total_size"], model.parameters.size() * 4);
  std::set<std::string> shards;
  for (const auto& [name, file] : index["weight_map"].items()) shards.insert(file.get<std::string>());
  EXPECT_GT(shards.size(), 2u);
  for (const std::string& shard : shards) {
    ASSERT_OK_AND_ASSIGN(const auto file, formats::SafetensorsFile::Open(dir.File(shard)));
    size_t bytes = 0;
    for (const auto& tensor : file.tensors()) bytes += tensor.num_bytes;
    EXPECT_LE(bytes, static_cast<size_t>(kShardBytes)) << shard;
  }
  ASSERT_OK_AND_ASSIGN(const LoadedModel again, LoadModel(dir.path()));
  EXPECT_EQ(again.parameters.Hash(), model.parameters.Hash());
  ASSERT_OK(ExportHf(model.config, model.parameters, DType::kF32, dir.path()));
  EXPECT_EQ(FilesIn(dir.path()), (std::set<std::string>{"config.json", "generation_config.json", "model.safetensors"}));
}

TEST(ExportHf, ReportsAFolderItCannotWrite) {
  const TempDir dir;
  const LoadedModel model = Sample(Architecture::kLlama, true);
  const std::string in_the_way = dir.Write("file", "x");
  EXPECT_FALSE(ExportHf(model.config, model.parameters, DType::kF32, in_the_way).ok());
}

TEST(ExportHf, GoldensComeBackByteForByte) {
  LOCKSTEP_NEEDS_SHARED();
  for (const char* name : {"llama_rope3", "llama_tied", "qwen2", "qwen3"}) {
    const TempDir dir;
    ASSERT_OK_AND_ASSIGN(const LoadedModel model,
                         LoadModel(testing::SharedPath(std::string("goldens/models/") + name)));
    ASSERT_OK(ExportHf(model.config, model.parameters, DType::kF32, dir.path()));
    ASSERT_OK_AND_ASSIGN(const LoadedModel again, LoadModel(dir.path()));
    EXPECT_EQ(again.config, model.config) << name;
    EXPECT_EQ(again.parameters.Hash(), model.parameters.Hash()) << name;
  }
}

}  // namespace
}  // namespace lockstep::model
