// A small random model: all the features of the three architectures, fast enough for unit tests.
#ifndef LOCKSTEP_TESTS_TESTING_TINY_MODEL_H_
#define LOCKSTEP_TESTS_TESTING_TINY_MODEL_H_

#include <string>

#include "model/load.h"
#include "runtime/base/philox.h"

namespace lockstep::testing {

inline model::ModelConfig TinyConfig(model::Architecture architecture) {
  model::ModelConfig config;
  config.architecture = architecture;
  config.hidden_size = 48;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.intermediate_size = 80;
  config.vocab_size = 203;
  config.max_position_embeddings = 1024;
  config.attention_bias = architecture == model::Architecture::kQwen2;
  config.qk_norm = architecture == model::Architecture::kQwen3;
  config.tie_word_embeddings = true;
  return config;
}

// Weights around 0 (gains around 1) that a counter RNG decides; `scale` spreads the logits.
inline model::LoadedModel TinyModel(model::Architecture architecture, uint64_t seed, float scale = 0.35f) {
  model::LoadedModel loaded{TinyConfig(architecture), model::Parameters(TinyConfig(architecture))};
  const RandomKey key{seed, RandomPurpose::kTest};
  float* values = loaded.parameters.data();
  for (const model::ParameterLayout::Entry& entry : loaded.parameters.layout().entries()) {
    const bool gain = entry.name.find("norm") != std::string::npos;
    for (int64_t i = 0; i < entry.size; ++i) {
      const auto u = static_cast<float>(UniformDouble(key, {.ordinal = entry.offset + i}) - 0.5);
      values[entry.offset + i] = gain ? 1.0f + 0.2f * u : 2 * scale * u;
    }
  }
  return loaded;
}

}  // namespace lockstep::testing

#endif  // LOCKSTEP_TESTS_TESTING_TINY_MODEL_H_
