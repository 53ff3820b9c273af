#include "model/parameters.h"

#include <algorithm>

#include "runtime/base/hash.h"
#include "tests/testing/status_matchers.h"

namespace lockstep::model {
namespace {

ModelConfig Config(Architecture architecture, int64_t num_layers = 12) {
  ModelConfig config;
  config.architecture = architecture;
  config.hidden_size = 8;
  config.num_layers = num_layers;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config.intermediate_size = 10;
  config.vocab_size = 20;
  config.max_position_embeddings = 32;
  config.attention_bias = architecture == Architecture::kQwen2;
  config.qk_norm = architecture == Architecture::kQwen3;
  config.tie_word_embeddings = true;
  return config;
}

TEST(ParameterLayout, LiesInNameOrderWithoutGaps) {
  for (const Architecture architecture : {Architecture::kLlama, Architecture::kQwen2, Architecture::kQwen3}) {
    const ParameterLayout layout(Config(architecture));
    int64_t next = 0;
    std::string before;
    for (const auto& entry : layout.entries()) {
      EXPECT_LT(before, entry.name);
      EXPECT_EQ(entry.offset, next);
      int64_t product = 1;
      for (const int64_t dim : entry.shape) product *= dim;
      EXPECT_EQ(entry.size, product);
      EXPECT_EQ(layout.Find(entry.name), &entry);
      next += entry.size;
      before = entry.name;
    }
    EXPECT_EQ(layout.total(), next);
  }
  // Bytewise, not by number.
  const ParameterLayout layout(Config(Architecture::kLlama));
  EXPECT_LT(layout.Get("model.layers.10.input_layernorm.weight").offset,
            layout.Get("model.layers.2.input_layernorm.weight").offset);
}

TEST(ParameterLayout, HasTheShapesOfHuggingFaceFiles) {
  const ParameterLayout layout(Config(Architecture::kQwen2, 1));
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(layout.Get("model.embed_tokens.weight").shape, (Shape{20, 8}));
  EXPECT_EQ(layout.Get("model.layers.0.self_attn.q_proj.weight").shape, (Shape{24, 8}));
  EXPECT_EQ(layout.Get("model.layers.0.self_attn.k_proj.weight").shape, (Shape{12, 8}));
  EXPECT_EQ(layout.Get("model.layers.0.self_attn.v_proj.bias").shape, (Shape{12}));
  EXPECT_EQ(layout.Get("model.layers.0.self_attn.o_proj.weight").shape, (Shape{8, 24}));
  EXPECT_EQ(layout.Get("model.layers.0.mlp.down_proj.weight").shape, (Shape{8, 10}));
  EXPECT_EQ(layout.Find("model.layers.0.self_attn.o_proj.bias"), nullptr);
  EXPECT_EQ(layout.Find("model.layers.0.self_attn.q_norm.weight"), nullptr);
  EXPECT_EQ(layout.Find("lm_head.weight"), nullptr);
  ModelConfig untied = Config(Architecture::kQwen3, 1);
  untied.tie_word_embeddings = false;
  EXPECT_EQ(ParameterLayout(untied).Get("lm_head.weight").shape, (Shape{20, 8}));
  EXPECT_EQ(ParameterLayout(untied).Get("model.layers.0.self_attn.k_norm.weight").shape, (Shape{6}));
  EXPECT_EQ(ParameterLayout(untied).entries().size(), 3u + 9u + 2u);
}

TEST(Parameters, HashIsOverAllFloatsInNameOrder) {
  Parameters parameters(Config(Architecture::kLlama));
  EXPECT_EQ(std::count(parameters.data(), parameters.data() + parameters.size(), 0.0f), parameters.size());
  const uint64_t zero_hash = parameters.Hash();
  // Entry by entry through the public names gives the same hash as the flat array.
  parameters.Get("model.norm.weight")[3] = 1.0f;
  Hasher hasher;
  for (const auto& entry : parameters.layout().entries()) {
    hasher.Update(parameters.Get(entry.name), static_cast<size_t>(entry.size) * sizeof(float));
  }
  EXPECT_EQ(parameters.Hash(), hasher.Digest());
  EXPECT_NE(parameters.Hash(), zero_hash);
}

TEST(Parameters, CopyIsSeparateAndViewsHaveTheShape) {
  Parameters parameters(Config(Architecture::kLlama));
  parameters.Get("model.norm.weight")[0] = 2;
  Parameters copy = parameters.Copy();
  EXPECT_EQ(copy.Hash(), parameters.Hash());
  copy.Get("model.norm.weight")[0] = 3;
  EXPECT_EQ(parameters.Get("model.norm.weight")[0], 2);
  const Matrix<float> matrix = parameters.View("model.layers.0.mlp.gate_proj.weight");
  EXPECT_EQ(matrix.rows, 10);
  EXPECT_EQ(matrix.cols, 8);
  const Matrix<float> vector = parameters.View("model.norm.weight");
  EXPECT_EQ(vector.rows, 1);
  EXPECT_EQ(vector.cols, 8);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(parameters.data()) % 64, 0u);
}

TEST(ParametersDeathTest, AnUnknownNameIsAProgrammingError) {
  const Parameters parameters(Config(Architecture::kLlama));
  EXPECT_DEATH(parameters.Get("model.nothing"), "model.nothing");
}

}  // namespace
}  // namespace lockstep::model
