#include "model/parameters.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/hash.h"

namespace lockstep::model {
namespace {

using Entry = ParameterLayout::Entry;

void Add(std::vector<Entry>& entries, std::string name, std::vector<int64_t> shape) {
  Entry entry;
  entry.name = std::move(name);
  entry.shape = std::move(shape);
  entry.size = 1;
  for (const int64_t dim : entry.shape) entry.size *= dim;
  entries.push_back(std::move(entry));
}

void AddLayer(std::vector<Entry>& entries, const ModelConfig& config, int64_t layer) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const int64_t hidden = config.hidden_size;
  const int64_t query = config.query_size();
  const int64_t kv = config.kv_size();
  Add(entries, prefix + "input_layernorm.weight", {hidden});
  Add(entries, prefix + "post_attention_layernorm.weight", {hidden});
  Add(entries, prefix + "mlp.gate_proj.weight", {config.intermediate_size, hidden});
  Add(entries, prefix + "mlp.up_proj.weight", {config.intermediate_size, hidden});
  Add(entries, prefix + "mlp.down_proj.weight", {hidden, config.intermediate_size});
  Add(entries, prefix + "self_attn.q_proj.weight", {query, hidden});
  Add(entries, prefix + "self_attn.k_proj.weight", {kv, hidden});
  Add(entries, prefix + "self_attn.v_proj.weight", {kv, hidden});
  Add(entries, prefix + "self_attn.o_proj.weight", {hidden, query});
  if (config.attention_bias) {
    Add(entries, prefix + "self_attn.q_proj.bias", {query});
    Add(entries, prefix + "self_attn.k_proj.bias", {kv});
    Add(entries, prefix + "self_attn.v_proj.bias", {kv});
  }
  if (config.qk_norm) {
    Add(entries, prefix + "self_attn.q_norm.weight", {config.head_dim});
    Add(entries, prefix + "self_attn.k_norm.weight", {config.head_dim});
  }
}

}  // namespace

ParameterLayout::ParameterLayout(const ModelConfig& config) {
  Add(entries_, "model.embed_tokens.weight", {config.vocab_size, config.hidden_size});
  Add(entries_, "model.norm.weight", {config.hidden_size});
  if (!config.tie_word_embeddings) Add(entries_, "lm_head.weight", {config.vocab_size, config.hidden_size});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) AddLayer(entries_, config, layer);
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  for (Entry& entry : entries_) {
    entry.offset = total_;
    total_ += entry.size;
  }
}

const Entry* ParameterLayout::Find(const std::string& name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const Entry& entry, const std::string& wanted) { return entry.name < wanted; });
  return found == entries_.end() || found->name != name ? nullptr : &*found;
}

const Entry& ParameterLayout::Get(const std::string& name) const {
  const Entry* entry = Find(name);
  if (entry == nullptr) CheckFailed(__FILE__, __LINE__, "the model has this parameter", name);
  return *entry;
}

Parameters::Parameters(const ModelConfig& config) : Parameters(std::make_shared<const ParameterLayout>(config)) {}

Parameters::Parameters(std::shared_ptr<const ParameterLayout> layout)
    : layout_(std::move(layout)), buffer_(Buffer::Zeroed(static_cast<size_t>(layout_->total()) * sizeof(float))) {}

Parameters Parameters::Copy() const {
  Parameters copy;
  copy.layout_ = layout_;
  copy.buffer_ = Buffer(buffer_.size());
  if (buffer_.size() != 0) std::memcpy(copy.buffer_.data(), buffer_.data(), buffer_.size());
  return copy;
}

namespace {
// Vectors are one row.
template <typename T>
Matrix<T> ViewOf(T* data, const Entry& entry) {
  return entry.shape.size() == 1 ? Matrix<T>(data + entry.offset, 1, entry.size)
                                 : Matrix<T>(data + entry.offset, entry.rows(), entry.cols());
}
}  // namespace

Matrix<float> Parameters::View(const std::string& name) { return ViewOf(data(), layout_->Get(name)); }
Matrix<const float> Parameters::View(const std::string& name) const { return ViewOf(data(), layout_->Get(name)); }

uint64_t Parameters::Hash() const { return Hash64(data(), static_cast<size_t>(size()) * sizeof(float)); }

}  // namespace lockstep::model
