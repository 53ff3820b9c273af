#include "model/packed_model.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "model/kernels/elementwise.h"
#include "runtime/base/check.h"

namespace lockstep::model {
namespace {

constexpr int64_t kAlignment = 64;
int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Hands out aligned pieces of a block.
class Allocator {
 public:
  int64_t Take(int64_t bytes) {
    const int64_t offset = next_;
    next_ += Aligned(bytes);
    return offset;
  }
  int64_t total() const { return next_; }

 private:
  int64_t next_ = 0;
};

const float* Floats(const uint8_t* memory, int64_t offset) {
  return offset < 0 ? nullptr : reinterpret_cast<const float*>(memory + offset);
}

const float* Find(const Parameters& parameters, const std::string& name) { return parameters.Get(name); }

void CopyFloats(const float* from, int64_t count, uint8_t* to) {
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

template <typename T>
T* At(uint8_t* memory, int64_t offset) {
  return reinterpret_cast<T*>(memory + offset);
}

// Rows of a table, converted; the team shares them.
template <typename T>
void ConvertTable(Team& team, const float* from, int64_t rows, int64_t cols, T* to) {
  const int64_t begin = rows * team.rank() / team.size(), end = rows * (team.rank() + 1) / team.size();
  ConvertRows<T>(Matrix<const float>(from, rows, cols).Rows(begin, end), Matrix<T>(to, rows, cols).Rows(begin, end));
}

// The stacked weight rows of each product of a layer.
struct LayerBlocks {
  WeightRows qkv[3], output[1], gate_up[2], down[1];
  LayerBlocks(const Dimensions& size, const Parameters& parameters, const LayerNames& names)
      : qkv{{Find(parameters, names.q), size.query},
            {Find(parameters, names.k), size.key_value},
            {Find(parameters, names.v), size.key_value}},
        output{{Find(parameters, names.output), size.hidden}},
        gate_up{{Find(parameters, names.gate), size.intermediate}, {Find(parameters, names.up), size.intermediate}},
        down{{Find(parameters, names.down), size.hidden}} {}
};

}  // namespace

Dimensions::Dimensions(const ModelConfig& config)
    : hidden(config.hidden_size),
      query(config.num_heads * config.head_dim),
      key_value(config.num_kv_heads * config.head_dim),
      qkv(query + 2 * key_value),
      intermediate(config.intermediate_size),
      vocab(config.vocab_size) {}

LayerNames::LayerNames(int64_t layer) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const std::string attention = prefix + "self_attn.";
  attention_norm = prefix + "input_layernorm.weight";
  q = attention + "q_proj.weight";
  k = attention + "k_proj.weight";
  v = attention + "v_proj.weight";
  q_bias = attention + "q_proj.bias";
  k_bias = attention + "k_proj.bias";
  v_bias = attention + "v_proj.bias";
  q_norm = attention + "q_norm.weight";
  k_norm = attention + "k_norm.weight";
  output = attention + "o_proj.weight";
  mlp_norm = prefix + "post_attention_layernorm.weight";
  gate = prefix + "mlp.gate_proj.weight";
  up = prefix + "mlp.up_proj.weight";
  down = prefix + "mlp.down_proj.weight";
}

const char* HeadName(const ModelConfig& config) {
  return config.tie_word_embeddings ? kEmbeddingName : "lm_head.weight";
}

PackedLayout::PackedLayout(const ModelConfig& config, DType dtype, MatMulBackend backend)
    : dtype_(dtype), backend_(backend) {
  const Dimensions size(config);
  const int64_t element = SizeOf(dtype);
  const int64_t gain = size.hidden * static_cast<int64_t>(sizeof(float));
  const int64_t head_gain = config.head_dim * static_cast<int64_t>(sizeof(float));
  Allocator take;
  const auto matrix = [&](int64_t n, int64_t k) { return take.Take(PackedSize(n, k, backend) * element); };
  embedding_ = take.Take(size.vocab * size.hidden * element);
  for (int64_t i = 0; i < config.num_layers; ++i) {
    Layer layer;
    layer.attention_norm = take.Take(gain);
    layer.qkv = matrix(size.qkv, size.hidden);
    layer.qkv_bias = config.attention_bias ? take.Take(size.qkv * static_cast<int64_t>(sizeof(float))) : -1;
    layer.query_norm = config.qk_norm ? take.Take(head_gain) : -1;
    layer.key_norm = config.qk_norm ? take.Take(head_gain) : -1;
    layer.output = matrix(size.hidden, size.query);
    layer.mlp_norm = take.Take(gain);
    layer.gate_up = matrix(2 * size.intermediate, size.hidden);
    layer.down = matrix(size.hidden, size.intermediate);
    layers_.push_back(layer);
  }
  final_norm_ = take.Take(gain);
  head_ = matrix(size.vocab, size.hidden);
  num_bytes_ = take.total();
}

template <typename T>
PackedModel<T>::PackedModel(const ModelConfig& config, const PackedLayout& layout, const uint8_t* memory) {
  CHECK(layout.dtype() == DTypeOf<T>::value);
  const Dimensions size(config);
  const auto matrix = [&](int64_t offset, int64_t n, int64_t k) {
    return PackedMatrix<T>(reinterpret_cast<const T*>(memory + offset), n, k, layout.backend());
  };
  embedding = Matrix<const T>(reinterpret_cast<const T*>(memory + layout.embedding()), size.vocab, size.hidden);
  for (const PackedLayout::Layer& at : layout.layers()) {
    layers.push_back(PackedLayer<T>{
        .attention_norm = Floats(memory, at.attention_norm),
        .qkv = matrix(at.qkv, size.qkv, size.hidden),
        .qkv_bias = Floats(memory, at.qkv_bias),
        .query_norm = Floats(memory, at.query_norm),
        .key_norm = Floats(memory, at.key_norm),
        .output = matrix(at.output, size.hidden, size.query),
        .mlp_norm = Floats(memory, at.mlp_norm),
        .gate_up = matrix(at.gate_up, 2 * size.intermediate, size.hidden),
        .down = matrix(at.down, size.hidden, size.intermediate),
    });
  }
  final_norm = Floats(memory, layout.final_norm());
  head = matrix(layout.head(), size.vocab, size.hidden);
}

template <typename T>
void PackModel(ThreadPool& pool, const ModelConfig& config, const Parameters& parameters, const PackedLayout& layout,
               uint8_t* memory) {
  const Dimensions size(config);
  pool.Run([&](Team& team) {
    ConvertTable(team, Find(parameters, kEmbeddingName), size.vocab, size.hidden, At<T>(memory, layout.embedding()));
    for (int64_t i = 0; i < config.num_layers; ++i) {
      const PackedLayout::Layer& at = layout.layers()[i];
      const LayerNames names(i);
      const LayerBlocks blocks(size, parameters, names);
      PackWeights<T>(team, blocks.qkv, size.hidden, At<T>(memory, at.qkv), layout.backend());
      PackWeights<T>(team, blocks.output, size.query, At<T>(memory, at.output), layout.backend());
      PackWeights<T>(team, blocks.gate_up, size.hidden, At<T>(memory, at.gate_up), layout.backend());
      PackWeights<T>(team, blocks.down, size.intermediate, At<T>(memory, at.down), layout.backend());
      if (team.rank() != 0) continue;
      CopyFloats(Find(parameters, names.attention_norm), size.hidden, memory + at.attention_norm);
      CopyFloats(Find(parameters, names.mlp_norm), size.hidden, memory + at.mlp_norm);
      if (config.attention_bias) {
        uint8_t* bias = memory + at.qkv_bias;
        CopyFloats(Find(parameters, names.q_bias), size.query, bias);
        CopyFloats(Find(parameters, names.k_bias), size.key_value, bias + size.query * sizeof(float));
        CopyFloats(Find(parameters, names.v_bias), size.key_value,
                   bias + (size.query + size.key_value) * sizeof(float));
      }
      if (config.qk_norm) {
        CopyFloats(Find(parameters, names.q_norm), config.head_dim, memory + at.query_norm);
        CopyFloats(Find(parameters, names.k_norm), config.head_dim, memory + at.key_norm);
      }
    }
    if (team.rank() == 0) CopyFloats(Find(parameters, kFinalNormName), size.hidden, memory + layout.final_norm());
    const WeightRows head[] = {{Find(parameters, HeadName(config)), size.vocab}};
    PackWeights<T>(team, head, size.hidden, At<T>(memory, layout.head()), layout.backend());
  });
}

template <typename T>
TransposedModel<T>::TransposedModel(const ModelConfig& config, MatMulBackend backend) {
  const Dimensions size(config);
  Allocator take;
  const auto place = [&](int64_t n, int64_t k) {
    return take.Take(PackedSize(n, k, backend) * static_cast<int64_t>(sizeof(T)));
  };
  struct Offsets {
    int64_t qkv, output, gate_up, down;
  };
  std::vector<Offsets> offsets;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    offsets.push_back({place(size.hidden, size.qkv), place(size.query, size.hidden),
                       place(size.hidden, 2 * size.intermediate), place(size.intermediate, size.hidden)});
  }
  const int64_t head = place(size.hidden, size.vocab);
  memory_ = Buffer(static_cast<size_t>(take.total()));
  const auto matrix = [&](int64_t offset, int64_t n, int64_t k) {
    return PackedMatrix<T>(At<T>(memory_.data(), offset), n, k, backend);
  };
  for (const Offsets& at : offsets) {
    layers_.push_back({matrix(at.qkv, size.hidden, size.qkv), matrix(at.output, size.query, size.hidden),
                       matrix(at.gate_up, size.hidden, 2 * size.intermediate),
                       matrix(at.down, size.intermediate, size.hidden)});
  }
  head_ = matrix(head, size.hidden, size.vocab);
}

template <typename T>
void TransposedModel<T>::Pack(ThreadPool& pool, const ModelConfig& config, const Parameters& parameters) {
  const Dimensions size(config);
  const auto writable = [](const PackedMatrix<T>& matrix) { return const_cast<T*>(matrix.data); };  // memory_ is ours
  pool.Run([&](Team& team) {
    for (int64_t i = 0; i < config.num_layers; ++i) {
      const LayerBlocks blocks(size, parameters, LayerNames(i));
      PackTransposed<T>(team, blocks.qkv, size.hidden, writable(layers_[i].qkv), backend());
      PackTransposed<T>(team, blocks.output, size.query, writable(layers_[i].output), backend());
      PackTransposed<T>(team, blocks.gate_up, size.hidden, writable(layers_[i].gate_up), backend());
      PackTransposed<T>(team, blocks.down, size.intermediate, writable(layers_[i].down), backend());
    }
    const WeightRows head[] = {{Find(parameters, HeadName(config)), size.vocab}};
    PackTransposed<T>(team, head, size.hidden, writable(head_), backend());
  });
}

template struct PackedModel<float>;
template struct PackedModel<Bf16>;
template class TransposedModel<float>;
template class TransposedModel<Bf16>;
template void PackModel<float>(ThreadPool&, const ModelConfig&, const Parameters&, const PackedLayout&, uint8_t*);
template void PackModel<Bf16>(ThreadPool&, const ModelConfig&, const Parameters&, const PackedLayout&, uint8_t*);

}  // namespace lockstep::model
