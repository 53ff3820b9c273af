#include "model/load.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "runtime/device/tensor.h"
#include "runtime/formats/safetensors.h"
#include "tests/runtime/formats/gguf_builder.h"
#include "tests/testing/shared_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::model {
namespace {

namespace fs = std::filesystem;
using ::lockstep::testing::StatusIs;
using ::lockstep::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Dtype = formats::SafetensorsDType;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kTinyConfig[] = R"({"model_type":"llama","hidden_size":4,"num_hidden_layers":1,"num_attention_heads":2,
  "num_key_value_heads":1,"head_dim":4,"intermediate_size":3,"vocab_size":5,"max_position_embeddings":16,
  "tie_word_embeddings":true,"eos_token_id":2})";

struct Stored {
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::string bytes;
};
using TensorMap = std::map<std::string, Stored>;

// The parameter's value number i: exact in half and bfloat16 alike.
float Value(int64_t i) { return static_cast<float>(i % 17) - 8.0f; }

TensorMap TinyTensors() {
  const ParameterLayout layout(*ParseHfConfig(*ParseJson(kTinyConfig)));
  TensorMap tensors;
  for (const auto& entry : layout.entries()) {
    Stored& stored = tensors[entry.name];
    stored.shape = entry.shape;
    for (int64_t i = 0; i < entry.size; ++i) stored.bytes += formats::Raw(Value(entry.offset + i));
  }
  return tensors;
}

void WriteSafetensors(const std::string& path, const TensorMap& tensors) {
  std::vector<formats::SafetensorsSpec> specs;
  for (const auto& [name, stored] : tensors) specs.push_back({name, stored.dtype, stored.shape});
  ASSERT_OK_AND_ASSIGN(auto writer, formats::SafetensorsWriter::Create(path, specs));
  for (const auto& [name, stored] : tensors) ASSERT_OK(writer.Append(stored.bytes.data(), stored.bytes.size()));
  ASSERT_OK(writer.Finish());
}

class LoadFolder : public ::testing::Test {
 protected:
  LoadFolder() { dir_.Write("config.json", kTinyConfig); }
  absl::StatusOr<LoadedModel> Load(const TensorMap& tensors) {
    WriteSafetensors(dir_.File("model.safetensors"), tensors);
    return LoadModel(dir_.path());
  }
  TempDir dir_;
};

TEST_F(LoadFolder, ReadsEveryParameter) {
  ASSERT_OK_AND_ASSIGN(const LoadedModel model, Load(TinyTensors()));
  EXPECT_EQ(model.config.head_dim, 4);
  for (int64_t i = 0; i < model.parameters.size(); ++i) ASSERT_EQ(model.parameters.data()[i], Value(i)) << i;
}

TEST_F(LoadFolder, ConvertsHalfAndBfloat16) {
  TensorMap tensors = TinyTensors();
  for (const char* name : {"model.norm.weight", "model.layers.0.mlp.up_proj.weight"}) {
    Stored& stored = tensors[name];
    std::string narrow;
    for (size_t at = 0; at < stored.bytes.size(); at += 4) {
      float value;
      std::memcpy(&value, stored.bytes.data() + at, 4);
      if (std::string(name) == "model.norm.weight") {
        narrow += formats::Raw(ToBf16(value).bits);
        stored.dtype = Dtype::kBf16;
        continue;
      }
      // Half of a small integer: sign, biased exponent, top mantissa bits.
      int exponent = 0;
      const float mantissa = std::frexp(std::abs(value), &exponent);
      uint16_t bits = value < 0 ? 0x8000 : 0;
      if (value != 0)
        bits |= static_cast<uint16_t>(((exponent + 14) << 10) | (static_cast<int>(mantissa * 2048) & 1023));
      narrow += formats::Raw(bits);
      stored.dtype = Dtype::kF16;
    }
    stored.bytes = narrow;
  }
  ASSERT_OK_AND_ASSIGN(const LoadedModel model, Load(tensors));
  for (int64_t i = 0; i < model.parameters.size(); ++i) ASSERT_EQ(model.parameters.data()[i], Value(i)) << i;
}

TEST_F(LoadFolder, NamesTheTensorThatIsWrong) {
  TensorMap missing = TinyTensors();
  missing.erase("model.layers.0.mlp.up_proj.weight");
  EXPECT_THAT(Load(missing), StatusIs(kInvalid, HasSubstr("tensor model.layers.0.mlp.up_proj.weight is missing")));
  TensorMap extra = TinyTensors();
  extra["model.layers.1.mlp.up_proj.weight"] = extra["model.norm.weight"];
  EXPECT_THAT(Load(extra), StatusIs(kInvalid, AllOf(HasSubstr("model.safetensors: tensor model.layers.1.mlp.up_proj"),
                                                    HasSubstr("unexpected"))));
  TensorMap shaped = TinyTensors();
  shaped["model.norm.weight"].shape = {2, 2};
  EXPECT_THAT(Load(shaped),
              StatusIs(kInvalid, HasSubstr("model.norm.weight has the shape [2, 2], config.json asks for [4]")));
  TensorMap typed = TinyTensors();
  typed["model.norm.weight"].dtype = Dtype::kI32;
  EXPECT_THAT(Load(typed), StatusIs(kInvalid, HasSubstr("model.norm.weight is stored as I32")));
}

TEST_F(LoadFolder, AcceptsARedundantHeadOnlyIfItIsEqual) {
  TensorMap tensors = TinyTensors();
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {Dtype::kF32, {1}, formats::Raw(1.0f)};
  EXPECT_OK(Load(tensors));
  tensors["lm_head.weight"].bytes[5] ^= 1;
  EXPECT_THAT(Load(tensors), StatusIs(kInvalid, HasSubstr("lm_head.weight differs from model.embed_tokens.weight")));
}

TEST_F(LoadFolder, ReadsShardsByTheirIndex) {
  TensorMap first = TinyTensors();
  TensorMap second;
  second["model.norm.weight"] = first["model.norm.weight"];
  first.erase("model.norm.weight");
  WriteSafetensors(dir_.File("one.safetensors"), first);
  WriteSafetensors(dir_.File("two.safetensors"), second);
  Json index;
  for (const auto& [name, stored] : first) index["weight_map"][name] = "one.safetensors";
  index["weight_map"]["model.norm.weight"] = "two.safetensors";
  const auto load = [&] {
    dir_.Write("model.safetensors.index.json", index.dump());
    return LoadModel(dir_.path());
  };
  ASSERT_OK_AND_ASSIGN(const LoadedModel model, load());
  for (int64_t i = 0; i < model.parameters.size(); ++i) ASSERT_EQ(model.parameters.data()[i], Value(i)) << i;

  index["weight_map"]["model.norm.weight"] = "one.safetensors";
  EXPECT_THAT(load(), StatusIs(kInvalid, HasSubstr("model.norm.weight is not in one.safetensors")));
  index["weight_map"]["model.norm.weight"] = "../two.safetensors";
  EXPECT_THAT(load(), StatusIs(kInvalid, HasSubstr("not a file name in this folder")));
  index["weight_map"]["model.norm.weight"] = "three.safetensors";
  EXPECT_THAT(load(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("three.safetensors")));
  index["weight_map"]["model.norm.weight"] = "two.safetensors";
  second["model.embed_tokens.weight"] = first["model.embed_tokens.weight"];
  WriteSafetensors(dir_.File("two.safetensors"), second);
  EXPECT_THAT(load(), StatusIs(kInvalid, AllOf(HasSubstr("model.embed_tokens.weight is also in"), HasSubstr("one"))));
}

TEST_F(LoadFolder, SaysWhatIsNotAModel) {
  EXPECT_THAT(LoadModel(dir_.path()), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no weights")));
  EXPECT_OK(LoadConfig(dir_.path()));  // a plan needs no weights
  EXPECT_THAT(LoadModel(dir_.File("absent")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  EXPECT_THAT(LoadModel(dir_.File("config.json")), StatusIs(kInvalid, HasSubstr("or a .gguf file")));
  const TempDir empty;
  EXPECT_THAT(LoadModel(empty.path()), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no config.json")));
  dir_.Write("config.json", "{");
  EXPECT_THAT(LoadConfig(dir_.path()), StatusIs(kInvalid, HasSubstr("config.json: not valid JSON")));
}

TEST_F(LoadFolder, TakesTheEndIdsOfGenerationConfig) {
  dir_.Write("generation_config.json", R"({"eos_token_id":[1,4]})");
  EXPECT_THAT(LoadConfig(dir_.path())->eos_token_ids, ElementsAre(1, 4));
  dir_.Write("generation_config.json", R"({"eos_token_id":9})");
  EXPECT_THAT(LoadConfig(dir_.path()), StatusIs(kInvalid, HasSubstr("generation_config.json")));
}

// A llama file of one layer with head_dim 4: rows of q and k are stored 0, 2, 1, 3 within each head.
formats::GgufBuilder TinyGguf(const std::string& leave_out = "") {
  formats::GgufBuilder b;
  b.String("general.architecture", "llama").U32("llama.embedding_length", 4).U32("llama.block_count", 1);
  b.U32("llama.feed_forward_length", 3).U32("llama.context_length", 16).U32("llama.attention.head_count", 2);
  b.U32("llama.attention.head_count_kv", 1).F32("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  b.U32("llama.attention.key_length", 4).U32("llama.attention.value_length", 4).U32("llama.rope.dimension_count", 4);
  const std::pair<const char*, const char*> names[] = {
      {"token_embd.weight", "model.embed_tokens.weight"},
      {"output_norm.weight", "model.norm.weight"},
      {"blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight"},
      {"blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"},
      {"blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight"},
      {"blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight"},
      {"blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"},
      {"blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"},
      {"blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight"},
      {"blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight"},
      {"blk.0.attn_output.weight", "model.layers.0.self_attn.o_proj.weight"},
  };
  TensorMap tensors = TinyTensors();
  for (const auto& [gguf, hf] : names) {
    if (gguf == leave_out) continue;
    const Stored& stored = tensors[hf];
    std::string bytes = stored.bytes;
    if (std::string(gguf) == "blk.0.attn_q.weight" || std::string(gguf) == "blk.0.attn_k.weight") {
      bytes.clear();
      for (int64_t head = 0; head < stored.shape[0] / 4; ++head) {
        for (const int64_t row : {0, 2, 1, 3})
          bytes += stored.bytes.substr(static_cast<size_t>(head * 4 + row) * 16, 16);
      }
    }
    b.Tensor(gguf, stored.shape, 0, bytes);
  }
  return b;
}

TEST(LoadGguf, PutsQueryAndKeyRowsBackIntoPlace) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const LoadedModel model, LoadModel(dir.Write("m.gguf", TinyGguf().Build())));
  EXPECT_EQ(model.parameters.layout().entries().size(), 11u);
  for (const auto& entry : model.parameters.layout().entries()) {
    for (int64_t i = 0; i < entry.size; ++i) {
      ASSERT_EQ(model.parameters.Get(entry.name)[i], Value(entry.offset + i)) << entry.name << " " << i;
    }
  }
}

TEST(LoadGguf, NamesTheTensorThatIsWrong) {
  const TempDir dir;
  const auto load = [&](const formats::GgufBuilder& b) { return LoadModel(dir.Write("m.gguf", b.Build())).status(); };
  EXPECT_THAT(load(TinyGguf("blk.0.ffn_up.weight")),
              StatusIs(kInvalid, HasSubstr("m.gguf: tensor blk.0.ffn_up.weight is missing")));
  EXPECT_THAT(load(TinyGguf().Floats("blk.0.attn_q.bias", {8}, std::vector<float>(8))),
              StatusIs(kInvalid, HasSubstr("tensor blk.0.attn_q.bias is unexpected")));
  EXPECT_THAT(load(TinyGguf("blk.0.ffn_up.weight").Floats("blk.0.ffn_up.weight", {4, 3}, std::vector<float>(12))),
              StatusIs(kInvalid, HasSubstr("blk.0.ffn_up.weight has the shape [4, 3], the metadata asks for [3, 4]")));
}

TEST(LoadGoldens, AllModelsLoadWithTheirShapes) {
  LOCKSTEP_NEEDS_SHARED();
  const std::pair<const char*, size_t> cases[] = {
      {"llama_rope3", 3 * 9 + 3}, {"llama_tied", 3 * 9 + 2}, {"qwen2", 3 * 12 + 2}, {"qwen3", 3 * 11 + 2}};
  for (const auto& [name, num_tensors] : cases) {
    const std::string folder = testing::SharedPath(std::string("goldens/models/") + name);
    ASSERT_OK_AND_ASSIGN(const LoadedModel model, LoadModel(folder));
    EXPECT_EQ(model.parameters.layout().entries().size(), num_tensors) << name;
    // Each parameter is what the file says, found through its name alone.
    ASSERT_OK_AND_ASSIGN(const auto file, formats::SafetensorsFile::Open(folder + "/model.safetensors"));
    for (const auto& tensor : file.tensors()) {
      EXPECT_EQ(model.parameters.layout().Get(tensor.name).shape, tensor.shape);
      EXPECT_EQ(std::memcmp(model.parameters.Get(tensor.name), tensor.data, tensor.num_bytes), 0) << tensor.name;
    }
  }
}

TEST(LoadGoldens, SmolLM2Loads) {
  const std::string path = testing::SmolModelPath();
  if (path.empty()) GTEST_SKIP() << "SKIPPED: the model is absent (scripts/fetch-model)";
  ASSERT_OK_AND_ASSIGN(const LoadedModel model, LoadModel(path));
  EXPECT_EQ(model.parameters.size(), 134'515'008);
  int64_t num_odd = 0;
  for (int64_t i = 0; i < model.parameters.size(); ++i) {
    const float value = model.parameters.data()[i];
    num_odd += std::isfinite(value) && std::abs(value) < 100 ? 0 : 1;
  }
  EXPECT_EQ(num_odd, 0);
}

}  // namespace
}  // namespace lockstep::model
