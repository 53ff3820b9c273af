#include "model/model_config.h"

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "runtime/formats/gguf.h"
#include "tests/runtime/formats/gguf_builder.h"
#include "tests/testing/shared_files.h"
#include "tests/testing/status_matchers.h"

namespace lockstep::model {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

Json LlamaJson() {
  return {{"model_type", "llama"},       {"hidden_size", 64},   {"num_hidden_layers", 3},
          {"num_attention_heads", 4},    {"vocab_size", 320},   {"intermediate_size", 160},
          {"num_key_value_heads", 2},    {"head_dim", 16},      {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},        {"bos_token_id", 1},   {"eos_token_id", 2},
          {"tie_word_embeddings", true}, {"hidden_act", "silu"}};
}

Json Llama3Rope() {
  return {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 64}};
}

TEST(HfConfig, OldAndNewSpellingAreTheSame) {
  Json old_spelling = LlamaJson();
  old_spelling["rope_theta"] = 500000.0;
  old_spelling["rope_scaling"] = Llama3Rope();
  Json older = old_spelling;
  older["rope_scaling"]["type"] = "llama3";
  older["rope_scaling"].erase("rope_type");
  Json new_spelling = LlamaJson();
  new_spelling["rope_parameters"] = Llama3Rope();
  new_spelling["rope_parameters"]["rope_theta"] = 500000.0;
  ASSERT_OK_AND_ASSIGN(const ModelConfig a, ParseHfConfig(old_spelling));
  ASSERT_OK_AND_ASSIGN(const ModelConfig b, ParseHfConfig(new_spelling));
  ASSERT_OK_AND_ASSIGN(const ModelConfig c, ParseHfConfig(older));
  EXPECT_EQ(a, b);
  EXPECT_EQ(a, c);
  EXPECT_EQ(a.rope.theta, 500000.0);
  EXPECT_EQ(a.rope.scaling, RopeConfig::Scaling::kLlama3);
  EXPECT_EQ(a.rope.factor, 8.0);
  EXPECT_EQ(a.rope.original_max_position_embeddings, 64);
  new_spelling["rope_theta"] = 10000.0;
  EXPECT_THAT(ParseHfConfig(new_spelling), StatusIs(kInvalid, HasSubstr("rope_theta is 10000 but")));
  new_spelling.erase("rope_theta");
  new_spelling["rope_scaling"] = Llama3Rope();
  EXPECT_OK(ParseHfConfig(new_spelling));
  new_spelling["rope_scaling"]["factor"] = 2.0;
  EXPECT_THAT(ParseHfConfig(new_spelling), StatusIs(kInvalid, HasSubstr("contradict each other")));
}

TEST(HfConfig, TakesTheDefaultsOfOldLlamaFiles) {
  Json json = LlamaJson();
  for (const char* key : {"num_key_value_heads", "head_dim", "max_position_embeddings", "hidden_act", "bos_token_id",
                          "eos_token_id", "tie_word_embeddings"}) {
    json.erase(key);
  }
  json["rope_scaling"] = nullptr;
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseHfConfig(json));
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.bos_token_id, -1);
  EXPECT_TRUE(config.eos_token_ids.empty());
  EXPECT_FALSE(config.tie_word_embeddings);
}

TEST(HfConfig, FlagsFollowTheArchitecture) {
  Json json = LlamaJson();
  EXPECT_FALSE(ParseHfConfig(json)->attention_bias);
  json["model_type"] = "qwen2";
  json["sliding_window"] = 4096;
  json["use_sliding_window"] = false;
  EXPECT_TRUE(ParseHfConfig(json)->attention_bias);
  json["model_type"] = "qwen3";
  EXPECT_FALSE(ParseHfConfig(json)->attention_bias);
  EXPECT_TRUE(ParseHfConfig(json)->qk_norm);
  json["eos_token_id"] = {5, 6};
  EXPECT_THAT(ParseHfConfig(json)->eos_token_ids, ElementsAre(5, 6));
}

TEST(HfConfig, RefusesWhatItWouldComputeWrongly) {
  struct Case {
    const char* change;  // merged into the llama file
    absl::StatusCode code;
    const char* message;
  };
  const Case cases[] = {
      {R"({"model_type":"mistral"})", kUnimplemented, "model_type \"mistral\""},
      {R"({"model_type":null})", kInvalid, "model_type is missing"},
      {R"({"hidden_act":"gelu"})", kUnimplemented, "hidden_act \"gelu\""},
      {R"({"attention_bias":true})", kUnimplemented, "attention_bias true for llama"},
      {R"({"mlp_bias":true})", kUnimplemented, "mlp_bias"},
      {R"({"sliding_window":4096})", kUnimplemented, "sliding window"},
      {R"({"use_sliding_window":true})", kUnimplemented, "sliding window"},
      {R"({"layer_types":["full_attention","sliding_attention"]})", kUnimplemented, "\"sliding_attention\""},
      {R"({"rope_scaling":{"type":"linear","factor":2.0}})", kUnimplemented, "rope type linear"},
      {R"({"rope_parameters":{"rope_type":"yarn","factor":2.0}})", kUnimplemented, "rope type yarn"},
      {R"({"rope_parameters":{"full_attention":{"rope_type":"default"}}})", kUnimplemented, "by layer type"},
      {R"({"rope_scaling":{"type":"llama3"}})", kInvalid, "factor is missing"},
      {R"({"partial_rotary_factor":0.5})", kUnimplemented, "partial_rotary_factor 0.5"},
      {R"({"quantization_config":{"bits":4}})", kUnimplemented, "quantization_config"},
      {R"({"hidden_size":null})", kInvalid, "hidden_size is missing"},
      {R"({"hidden_size":"64"})", kInvalid, "hidden_size is \"64\", not an integer"},
      {R"({"hidden_size":64.0})", kInvalid, "not an integer"},
      {R"({"hidden_size":18446744073709551615})", kInvalid, "not an integer"},
      {R"({"vocab_size":0})", kInvalid, "vocab_size is 0"},
      {R"({"num_attention_heads":0})", kInvalid, "num_attention_heads is 0"},
      {R"({"num_hidden_layers":1000000000})", kInvalid, "num_hidden_layers"},
      {R"({"num_key_value_heads":3})", kInvalid, "not a multiple"},
      {R"({"head_dim":15})", kInvalid, "RoPE needs an even one"},
      {R"({"rms_norm_eps":"x"})", kInvalid, "rms_norm_eps is \"x\", not a number"},
      {R"({"rope_theta":-1})", kInvalid, "rope_theta is -1"},
      {R"({"eos_token_id":320})", kInvalid, "eos_token_id is 320"},
      {R"({"eos_token_id":["a"]})", kInvalid, "eos_token_id has \"a\""},
      {R"({"tie_word_embeddings":1})", kInvalid, "tie_word_embeddings is 1, not true or false"},
  };
  for (const Case& c : cases) {
    Json json = LlamaJson();
    json.update(*ParseJson(c.change));
    EXPECT_THAT(ParseHfConfig(json), StatusIs(c.code, HasSubstr(c.message))) << c.change;
  }
  EXPECT_THAT(ParseHfConfig(Json::array()), StatusIs(kInvalid, HasSubstr("not an object")));
}

TEST(HfConfig, WritesWhatItReads) {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    for (const bool scaled : {false, true}) {
      Json json = LlamaJson();
      json["model_type"] = type;
      json["pad_token_id"] = 0;
      json["eos_token_id"] = {2, 7};
      json["rope_theta"] = 1e6;
      if (scaled) json["rope_scaling"] = Llama3Rope();
      ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseHfConfig(json));
      const Json written = ToHfJson(config, "bfloat16");
      ASSERT_OK_AND_ASSIGN(const ModelConfig again, ParseHfConfig(*ParseJson(written.dump(2))));
      EXPECT_EQ(config, again) << written.dump(2);
      EXPECT_EQ(written["torch_dtype"], "bfloat16");
      EXPECT_NE(written.dump().find("\"rms_norm_eps\":1e-05,"), std::string::npos);
    }
  }
}

TEST(HfConfig, ReadsTheGoldens) {
  LOCKSTEP_NEEDS_SHARED();
  for (const char* name : {"llama_rope3", "llama_tied", "qwen2", "qwen3"}) {
    const std::string path = testing::SharedPath(std::string("goldens/models/") + name + "/config.json");
    ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseHfConfig(*ParseJson(*ReadFile(path))));
    EXPECT_EQ(config.vocab_size, 320) << name;
    EXPECT_EQ(config.tie_word_embeddings, std::string(name) != "llama_rope3");
    EXPECT_EQ(config.rope.scaling == RopeConfig::Scaling::kLlama3, std::string(name) == "llama_rope3");
  }
}

class GgufConfig : public ::testing::Test {
 protected:
  static formats::GgufBuilder Base(const std::string& architecture = "llama") {
    formats::GgufBuilder b;
    b.String("general.architecture", architecture);
    b.U32(architecture + ".embedding_length", 64).U32(architecture + ".block_count", 3);
    b.U32(architecture + ".feed_forward_length", 160).U32(architecture + ".context_length", 512);
    b.U32(architecture + ".attention.head_count", 4).U32(architecture + ".attention.head_count_kv", 2);
    b.F32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
    return b;
  }
  static void AddEmbedding(formats::GgufBuilder& b) {
    b.Floats("token_embd.weight", {32, 64}, std::vector<float>(32 * 64));
  }
  absl::StatusOr<ModelConfig> Parse(const formats::GgufBuilder& builder) {
    bytes_ = builder.Build();
    auto file = formats::GgufFile::Parse(reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size(), "x.gguf");
    if (!file.ok()) return file.status();
    return ParseGgufConfig(*file);
  }
  std::string bytes_;
};

TEST_F(GgufConfig, ReadsMetadata) {
  formats::GgufBuilder b = Base("qwen3");
  AddEmbedding(b);
  b.U32("qwen3.attention.key_length", 32).U32("qwen3.attention.value_length", 32).F32("qwen3.rope.freq_base", 1e6f);
  b.U32("tokenizer.ggml.eos_token_id", 3).U32("tokenizer.ggml.eot_token_id", 4).U32("tokenizer.ggml.bos_token_id", 1);
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, Parse(b));
  EXPECT_EQ(config.architecture, Architecture::kQwen3);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.vocab_size, 32);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(3, 4));
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_TRUE(config.tie_word_embeddings);
  b.Floats("output.weight", {1}, {0});
  EXPECT_FALSE(Parse(b)->tie_word_embeddings);
}

TEST_F(GgufConfig, RefusesWhatItWouldComputeWrongly) {
  const auto refuses = [&](const std::function<void(formats::GgufBuilder&)>& change, absl::StatusCode code,
                           const char* message) {
    formats::GgufBuilder b = Base();
    AddEmbedding(b);
    change(b);
    EXPECT_THAT(Parse(b), StatusIs(code, HasSubstr(message)));
  };
  using B = formats::GgufBuilder&;
  refuses([](B b) { b.String("llama.rope.scaling.type", "yarn"); }, kUnimplemented, "rope scaling 'yarn'");
  refuses([](B b) { b.F32("llama.rope.scale_linear", 2); }, kUnimplemented, "linear rope scaling");
  refuses([](B b) { b.U32("llama.expert_count", 8); }, kUnimplemented, "mixture of experts");
  refuses([](B b) { b.U32("llama.attention.sliding_window", 8); }, kUnimplemented, "sliding window");
  refuses([](B b) { b.U32("llama.rope.dimension_count", 8); }, kUnimplemented, "RoPE over 8 of 16");
  refuses([](B b) { b.U32("llama.attention.value_length", 8); }, kUnimplemented, "value length");
  refuses([](B b) { b.U32("llama.vocab_size", 33); }, kInvalid, "token_embd.weight has 32 rows, but llama.vocab_size");
  refuses([](B b) { b.U32("tokenizer.ggml.eos_token_id", 32); }, kInvalid, "eos_token_id is 32");
  EXPECT_THAT(Parse(Base()), StatusIs(kInvalid, HasSubstr("token_embd.weight is missing")));
  EXPECT_THAT(Parse(Base("gemma")), StatusIs(kUnimplemented, HasSubstr("'gemma'")));
  EXPECT_THAT(Parse(formats::GgufBuilder().String("general.architecture", "llama")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("llama.embedding_length")));
}

// Divisors as converters write them for Llama 3.2 (theta 500000, head_dim 64): computed here by the published formula.
std::vector<float> Llama32Divisors() {
  std::vector<float> divisors;
  for (int i = 0; i < 32; ++i) {
    const double wavelength = 2 * M_PI * std::pow(500000.0, i / 32.0);
    const double smooth = (8192 / wavelength - 1) / 3;
    divisors.push_back(static_cast<float>(wavelength < 2048   ? 1.0
                                          : wavelength > 8192 ? 32.0
                                                              : 1 / ((1 - smooth) / 32 + smooth)));
  }
  return divisors;
}

TEST_F(GgufConfig, RecoversLlama3ScalingFromItsDivisors) {
  const auto with = [](std::vector<float> divisors) {
    formats::GgufBuilder b = Base();
    AddEmbedding(b);
    b.U32("llama.attention.key_length", 64).U32("llama.attention.value_length", 64);
    b.F32("llama.rope.freq_base", 500000);
    b.Floats("rope_freqs.weight", {static_cast<int64_t>(divisors.size())}, divisors);
    return b;
  };
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, Parse(with(Llama32Divisors())));
  EXPECT_EQ(config.rope.scaling, RopeConfig::Scaling::kLlama3);
  EXPECT_EQ(config.rope.factor, 32);
  EXPECT_EQ(config.rope.original_max_position_embeddings, 8192);
  std::vector<float> other = Llama32Divisors();
  other[12] *= 1.01f;
  EXPECT_THAT(Parse(with(other)), StatusIs(kUnimplemented, HasSubstr("rope_freqs.weight that is not Llama 3's")));
  EXPECT_THAT(Parse(with({1, 2})), StatusIs(kInvalid, HasSubstr("rope_freqs.weight has 2 entries, expected 32")));
}

TEST_F(GgufConfig, ReadsSmolLM2) {
  const std::string path = testing::SmolModelPath();
  if (path.empty()) GTEST_SKIP() << "SKIPPED: the model is absent (scripts/fetch-model)";
  ASSERT_OK_AND_ASSIGN(const formats::GgufFile file, formats::GgufFile::Open(path));
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseGgufConfig(file));
  EXPECT_EQ(config.num_layers, 30);
  EXPECT_EQ(config.num_heads, 9);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.rope.theta, 100000.0);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
}

}  // namespace
}  // namespace lockstep::model
