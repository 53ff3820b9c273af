// The float32 weights of a model: one flat array in NAME ORDER (bytewise; "model.layers.10." comes before
// "model.layers.2."), entries one after another without gaps. Master weights, gradients, optimizer moments and the
// weight hash all use this layout, so a piece of the flat array means the same to all of them.
//
// Names and shapes are those of Hugging Face files:
//   lm_head.weight                                        [vocab, hidden]          untied heads only
//   model.embed_tokens.weight                             [vocab, hidden]
//   model.layers.N.input_layernorm.weight                 [hidden]
//   model.layers.N.mlp.{gate,up}_proj.weight              [intermediate, hidden]
//   model.layers.N.mlp.down_proj.weight                   [hidden, intermediate]
//   model.layers.N.post_attention_layernorm.weight        [hidden]
//   model.layers.N.self_attn.q_proj.weight                [num_heads * head_dim, hidden]
//   model.layers.N.self_attn.{k,v}_proj.weight            [num_kv_heads * head_dim, hidden]
//   model.layers.N.self_attn.{q,k,v}_proj.bias            [rows of the weight]     attention_bias only
//   model.layers.N.self_attn.{q,k}_norm.weight            [head_dim]               qk_norm only
//   model.layers.N.self_attn.o_proj.weight                [hidden, num_heads * head_dim]
//   model.norm.weight                                     [hidden]
#ifndef LOCKSTEP_MODEL_PARAMETERS_H_
#define LOCKSTEP_MODEL_PARAMETERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "runtime/device/tensor.h"

namespace lockstep::model {

// Where each parameter lies. Immutable and so thread-safe.
class ParameterLayout {
 public:
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;  // [out, in] or [size]
    int64_t offset = 0;          // floats from the start of the flat array
    int64_t size = 0;            // floats: product of shape
    int64_t rows() const { return shape.front(); }
    int64_t cols() const { return size / shape.front(); }  // 1 for vectors
  };

  ParameterLayout() = default;
  explicit ParameterLayout(const ModelConfig& config);  // config is valid

  const std::vector<Entry>& entries() const { return entries_; }  // in name order
  int64_t total() const { return total_; }                        // floats
  const Entry* Find(const std::string& name) const;               // nullptr if absent
  const Entry& Get(const std::string& name) const;                // CHECKs that it is there

 private:
  std::vector<Entry> entries_;
  int64_t total_ = 0;
};

// An owned flat array with its layout. Move-only; Copy() makes the cost explicit. Thread contract: const access from
// any number of threads while nobody writes; writers of disjoint pieces do not disturb each other.
class Parameters {
 public:
  Parameters() = default;
  explicit Parameters(const ModelConfig& config);  // zeroed
  explicit Parameters(std::shared_ptr<const ParameterLayout> layout);
  Parameters Copy() const;

  const ParameterLayout& layout() const { return *layout_; }
  const std::shared_ptr<const ParameterLayout>& shared_layout() const { return layout_; }
  int64_t size() const { return layout_ == nullptr ? 0 : layout_->total(); }

  // The flat array, [size()]; 64-byte aligned.
  float* data() { return buffer_.as<float>(); }
  const float* data() const { return buffer_.as<float>(); }

  // One parameter's floats, row-major. CHECKs that the name exists.
  float* Get(const std::string& name) { return data() + layout_->Get(name).offset; }
  const float* Get(const std::string& name) const { return data() + layout_->Get(name).offset; }
  // The same as a matrix [rows, cols]; vectors are [1, size].
  Matrix<float> View(const std::string& name);
  Matrix<const float> View(const std::string& name) const;

  // XXH3-64 over all floats in name order: the weight hash of runtime/data/weight_version.h.
  uint64_t Hash() const;

 private:
  std::shared_ptr<const ParameterLayout> layout_;
  Buffer buffer_;
};

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_PARAMETERS_H_
