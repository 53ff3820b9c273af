// The toy of ../shared/goldens/algos/trees.json, put together from the kernels that train real models: embedding,
// packed products, RoPE, attention over a token forest, logits, and their backward passes.
//
//   x = E[token];  per layer: q = R(Wq x), k = R(Wk x), v = Wv x, x += Wo softmax(q k / sqrt(4)) v;  logits = U x
//
// One head of 4 elements, two layers, no norm, no bias; R turns neighbouring pairs by position * 1 and position * 0.1.
#ifndef LOCKSTEP_TESTS_LEARNER_TOY_TRANSFORMER_H_
#define LOCKSTEP_TESTS_LEARNER_TOY_TRANSFORMER_H_

#include <map>
#include <string>
#include <vector>

#include "model/kernels/attention_plan.h"
#include "model/kernels/rope.h"
#include "runtime/base/thread_pool.h"
#include "runtime/data/token_tree.h"
#include "runtime/device/tensor.h"

namespace lockstep::testing {

class ToyTransformer {
 public:
  // A matrix is [outputs][inputs], rows one after the other. Names: E, U and per layer Wq0, Wk0, Wv0, Wo0, Wq1, ...
  using Weights = std::map<std::string, std::vector<float>>;

  explicit ToyTransformer(Weights weights);

  int64_t vocab() const { return vocab_; }

  // Log-prob of each loss row, at its own temperature of 1.
  std::vector<float> Forward(const FlatForest& forest);

  // Gradients of the loss by the weights, given d loss / d log-prob of each loss row of the last Forward.
  Weights Backward(const std::vector<float>& d_logprobs);

 private:
  static constexpr int64_t kHidden = 4;
  static constexpr int kLayers = 2;
  struct Layer {
    OwnedMatrix<float> x, q, k, v, attention, lse;  // x: the layer's input
  };
  std::vector<float> Packed(const std::vector<std::string>& names, bool transposed) const;
  void ForwardLayer(int layer, Layer& state, Matrix<float> x_out);
  void BackwardLayer(int layer, const Layer& state, Matrix<float> dx, Weights& gradients);

  const Weights weights_;
  const int64_t vocab_;
  const model::RopeTable rope_;
  FlatForest forest_;
  model::AttentionPlan plan_;
  Layer layers_[kLayers];
  OwnedMatrix<float> x_;       // [tokens, kHidden] what the head reads
  OwnedMatrix<float> logits_;  // [tokens, vocab]
};

}  // namespace lockstep::testing

#endif  // LOCKSTEP_TESTS_LEARNER_TOY_TRANSFORMER_H_
