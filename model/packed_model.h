// A model's weights in the form that the kernels read: one block of memory, so that it can be published in shared
// memory and mapped read-only by every reader. Matrices are packed for one backend (model/kernels/matmul.h) and stored
// as T; norm gains and biases stay float32.
//
//   PackedLayout layout(config, DType::kBf16);
//   PackModel<Bf16>(pool, config, parameters, layout, memory);       // memory: [layout.num_bytes()], 64-byte aligned
//   PackedModel<Bf16> model(config, layout, memory);                 // a view
//
// Thread contract: the layout and views are immutable.
#ifndef LOCKSTEP_MODEL_PACKED_MODEL_H_
#define LOCKSTEP_MODEL_PACKED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model/kernels/matmul.h"
#include "model/model_config.h"
#include "model/parameters.h"
#include "runtime/base/thread_pool.h"
#include "runtime/device/tensor.h"

namespace lockstep::model {

// Sizes that follow from the configuration.
struct Dimensions {
  int64_t hidden, query, key_value, qkv, intermediate, vocab;
  explicit Dimensions(const ModelConfig& config);
};

// Where each piece of the packed form lies: byte offsets, each a multiple of 64. -1: the model has no such piece.
class PackedLayout {
 public:
  struct Layer {
    int64_t attention_norm, qkv, qkv_bias, query_norm, key_norm, output, mlp_norm, gate_up, down;
  };
  PackedLayout(const ModelConfig& config, DType dtype, MatMulBackend backend = MatMulBackend::kOwn);

  int64_t num_bytes() const { return num_bytes_; }
  DType dtype() const { return dtype_; }
  MatMulBackend backend() const { return backend_; }
  int64_t embedding() const { return embedding_; }
  int64_t final_norm() const { return final_norm_; }
  int64_t head() const { return head_; }
  const std::vector<Layer>& layers() const { return layers_; }

 private:
  DType dtype_;
  MatMulBackend backend_;
  int64_t num_bytes_ = 0;
  int64_t embedding_ = 0, final_norm_ = 0, head_ = 0;
  std::vector<Layer> layers_;
};

template <typename T>
struct PackedLayer {
  const float* attention_norm;  // [hidden]
  PackedMatrix<T> qkv;          // [query + 2 key_value, hidden]
  const float* qkv_bias;        // [query + 2 key_value], or nullptr
  const float* query_norm;      // [head_dim], or nullptr
  const float* key_norm;        // [head_dim], or nullptr
  PackedMatrix<T> output;       // [hidden, query]
  const float* mlp_norm;        // [hidden]
  PackedMatrix<T> gate_up;      // [2 intermediate, hidden]: all gates, then all ups
  PackedMatrix<T> down;         // [hidden, intermediate]
};

template <typename T>
struct PackedModel {
  PackedModel(const ModelConfig& config, const PackedLayout& layout, const uint8_t* memory);
  Matrix<const T> embedding;  // [vocab, hidden]
  std::vector<PackedLayer<T>> layers;
  const float* final_norm;  // [hidden]
  PackedMatrix<T> head;     // [vocab, hidden]
};

// Fills `memory` from float32 parameters.
template <typename T>
void PackModel(ThreadPool& pool, const ModelConfig& config, const Parameters& parameters, const PackedLayout& layout,
               uint8_t* memory);

// The transposed matrices that the backward pass multiplies with; private to the learner.
template <typename T>
class TransposedModel {
 public:
  struct Layer {
    PackedMatrix<T> qkv, output, gate_up,
        down;  // [hidden, qkv], [query, hidden], [hidden, 2 intermediate], [intermediate, hidden]
  };
  explicit TransposedModel(const ModelConfig& config, MatMulBackend backend = MatMulBackend::kOwn);
  void Pack(ThreadPool& pool, const ModelConfig& config, const Parameters& parameters);
  const Layer& layer(int64_t index) const { return layers_[index]; }
  const PackedMatrix<T>& head() const { return head_; }  // [hidden, vocab]
  MatMulBackend backend() const { return head_.backend; }
  int64_t num_bytes() const { return static_cast<int64_t>(memory_.size()); }

 private:
  Buffer memory_;
  std::vector<Layer> layers_;
  PackedMatrix<T> head_;
};

// Names of the parameters of a layer and of the head, as in Hugging Face's files.
struct LayerNames {
  std::string attention_norm, q, k, v, q_bias, k_bias, v_bias, q_norm, k_norm, output, mlp_norm, gate, up, down;
  explicit LayerNames(int64_t layer);
};
inline constexpr char kEmbeddingName[] = "model.embed_tokens.weight";
inline constexpr char kFinalNormName[] = "model.norm.weight";
const char* HeadName(const ModelConfig& config);  // "lm_head.weight", or the embedding's name where the head is tied

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_PACKED_MODEL_H_
