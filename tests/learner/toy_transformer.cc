#include "tests/learner/toy_transformer.h"

#include <algorithm>
#include <utility>

#include "model/kernels/attention.h"
#include "model/kernels/embedding.h"
#include "model/kernels/logits.h"
#include "model/kernels/matmul.h"
#include "model/kernels/qkv_post.h"
#include "runtime/base/check.h"

namespace lockstep::testing {
namespace {

constexpr model::AttentionShape kShape{.num_heads = 1, .num_kv_heads = 1, .head_dim = 4};

std::string Name(const char* matrix, int layer) { return matrix + std::to_string(layer); }

Matrix<const float> View(const OwnedMatrix<float>& matrix) { return matrix.view(); }

void Zero(OwnedMatrix<float>& matrix) { std::fill_n(matrix.data(), matrix.rows() * matrix.cols(), 0.0f); }

}  // namespace

ToyTransformer::ToyTransformer(Weights weights)
    : weights_(std::move(weights)),
      vocab_(static_cast<int64_t>(weights_.at("U").size()) / kHidden),
      rope_({.head_dim = kHidden, .max_positions = 64, .theta = 100, .pairing = model::RopePairing::kNeighbours}) {}

// The named matrices, one below the other, or the transpose of that.
std::vector<float> ToyTransformer::Packed(const std::vector<std::string>& names, bool transposed) const {
  std::vector<model::WeightRows> blocks;
  int64_t rows = 0;
  for (const std::string& name : names) {
    const std::vector<float>& matrix = weights_.at(name);
    blocks.push_back({matrix.data(), static_cast<int64_t>(matrix.size()) / kHidden});
    rows += blocks.back().rows;
  }
  Team team = TeamOfOne();
  std::vector<float> packed(transposed ? model::PackedSize(kHidden, rows) : model::PackedSize(rows, kHidden));
  if (transposed) {
    model::PackTransposed<float>(team, blocks, kHidden, packed.data());
  } else {
    model::PackWeights<float>(team, blocks, kHidden, packed.data());
  }
  return packed;
}

void ToyTransformer::ForwardLayer(int layer, Layer& state, Matrix<float> x_out) {
  Team team = TeamOfOne();
  const int64_t rows = forest_.num_tokens();
  for (OwnedMatrix<float>* matrix : {&state.q, &state.k, &state.v, &state.attention}) matrix->Resize(rows, kHidden);
  state.lse.Resize(rows, 1);

  OwnedMatrix<float> qkv(rows, 3 * kHidden);
  const std::vector<float> w_qkv = Packed({Name("Wq", layer), Name("Wk", layer), Name("Wv", layer)}, false);
  model::MatMul<float, float>(team, View(state.x), {w_qkv.data(), 3 * kHidden, kHidden}, qkv.view());
  const model::QkvPost post{.num_heads = 1, .num_kv_heads = 1, .head_dim = kHidden, .rope = &rope_};
  for (int64_t r = 0; r < rows; ++r) {
    model::QkvPostForward<float>(post, forest_.position_ids[r], qkv.view().row(r), state.q.view().row(r),
                                 state.k.view().row(r), state.v.view().row(r));
  }
  for (int64_t t = 0; t < plan_.num_tiles(); ++t) {
    model::AttentionForward<float>(kShape, 0, plan_.tile(t), View(state.q), View(state.k), View(state.v),
                                   state.attention.view(), state.lse.view());
  }
  std::copy_n(state.x.data(), rows * kHidden, x_out.data);
  const std::vector<float> w_out = Packed({Name("Wo", layer)}, false);
  model::MatMul<float, float>(team, View(state.attention), {w_out.data(), kHidden, kHidden}, x_out, model::Store::kAdd);
}

std::vector<float> ToyTransformer::Forward(const FlatForest& forest) {
  Team team = TeamOfOne();
  forest_ = forest;
  const int64_t rows = forest.num_tokens();
  plan_ = model::AttentionPlan(forest_.position_ids, forest_.subtree_end, model::MaxTileQueries(kShape));
  for (Layer& layer : layers_) layer.x.Resize(rows, kHidden);
  x_.Resize(rows, kHidden);
  const Matrix<const float> table(weights_.at("E").data(), vocab_, kHidden);
  model::EmbeddingForward<float>(table, forest_.token_ids, layers_[0].x.view());
  for (int layer = 0; layer < kLayers; ++layer) {
    ForwardLayer(layer, layers_[layer], layer + 1 < kLayers ? layers_[layer + 1].x.view() : x_.view());
  }
  logits_.Resize(rows, vocab_);
  const std::vector<float> head = Packed({"U"}, false);
  model::MatMul<float, float>(team, View(x_), {head.data(), vocab_, kHidden}, logits_.view());
  std::vector<float> logprobs;
  for (const LossRow& row : forest_.loss_rows) {
    const absl::Span<const float> logits(logits_.view().row(row.row), vocab_);
    logprobs.push_back(model::LogProb(model::ComputeStatistics(logits, 1, {}), logits[row.target_id], 1));
  }
  return logprobs;
}

void ToyTransformer::BackwardLayer(int layer, const Layer& state, Matrix<float> dx, Weights& gradients) {
  Team team = TeamOfOne();
  const int64_t rows = forest_.num_tokens();
  const auto gradient_of = [&](const char* name) {
    std::vector<float>& gradient = gradients[Name(name, layer)];
    gradient.assign(kHidden * kHidden, 0.0f);
    return Matrix<float>(gradient.data(), kHidden, kHidden);
  };
  model::WeightGradient<float>(dx, 0, View(state.attention), gradient_of("Wo"));
  OwnedMatrix<float> d_attention(rows, kHidden), dq(rows, kHidden), dk(rows, kHidden), dv(rows, kHidden);
  const std::vector<float> w_out = Packed({Name("Wo", layer)}, true);
  model::MatMul<float, float>(team, dx, {w_out.data(), kHidden, kHidden}, d_attention.view());
  Zero(dk);
  Zero(dv);
  for (int64_t t = 0; t < plan_.num_tiles(); ++t) {
    model::AttentionBackward<float>(kShape, 0, plan_.tile(t), View(state.q), View(state.k), View(state.v),
                                    View(state.attention), View(state.lse), View(d_attention), dq.view(), dk.view(),
                                    dv.view());
  }
  OwnedMatrix<float> d_qkv(rows, 3 * kHidden);
  const model::QkvPost post{.num_heads = 1, .num_kv_heads = 1, .head_dim = kHidden, .rope = &rope_};
  for (int64_t r = 0; r < rows; ++r) {
    model::QkvPostBackward<float>(post, forest_.position_ids[r], nullptr, dq.view().row(r), dk.view().row(r),
                                  dv.view().row(r), d_qkv.view().row(r), {});
  }
  int64_t first = 0;
  for (const char* name : {"Wq", "Wk", "Wv"}) {
    model::WeightGradient<float>(View(d_qkv), first, View(state.x), gradient_of(name));
    first += kHidden;
  }
  const std::vector<float> w_qkv = Packed({Name("Wq", layer), Name("Wk", layer), Name("Wv", layer)}, true);
  model::MatMul<float, float>(team, View(d_qkv), {w_qkv.data(), kHidden, 3 * kHidden}, dx, model::Store::kAdd);
}

ToyTransformer::Weights ToyTransformer::Backward(const std::vector<float>& d_logprobs) {
  Team team = TeamOfOne();
  const int64_t rows = forest_.num_tokens();
  CHECK_EQ(d_logprobs.size(), forest_.loss_rows.size());
  std::vector<std::vector<model::LogitTarget>> targets(rows);
  for (size_t i = 0; i < d_logprobs.size(); ++i) {
    const LossRow& row = forest_.loss_rows[i];
    const absl::Span<const float> logits(logits_.view().row(row.row), vocab_);
    targets[row.row].push_back({.id = row.target_id,
                                .statistics = model::ComputeStatistics(logits, 1, {}),
                                .d_logprob = d_logprobs[i] * row.weight});
  }
  OwnedMatrix<float> d_logits(rows, vocab_);
  Zero(d_logits);
  for (int64_t r = 0; r < rows; ++r) {
    if (targets[r].empty()) continue;
    model::LogitsBackward<float>(absl::MakeConstSpan(logits_.view().row(r), vocab_), targets[r],
                                 d_logits.view().row(r));
  }
  Weights gradients;
  gradients["U"].assign(vocab_ * kHidden, 0.0f);
  model::WeightGradient<float>(View(d_logits), 0, View(x_), {gradients["U"].data(), vocab_, kHidden});
  OwnedMatrix<float> dx(rows, kHidden);
  const std::vector<float> head = Packed({"U"}, true);
  model::MatMul<float, float>(team, View(d_logits), {head.data(), kHidden, vocab_}, dx.view());
  for (int layer = kLayers - 1; layer >= 0; --layer) BackwardLayer(layer, layers_[layer], dx.view(), gradients);
  gradients["E"].assign(vocab_ * kHidden, 0.0f);
  model::EmbeddingBackward(forest_.token_ids, View(dx), {gradients["E"].data(), vocab_, kHidden});
  return gradients;
}

}  // namespace lockstep::testing
