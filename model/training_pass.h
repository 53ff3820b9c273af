// Forward and backward over a token forest: the learner's view of the model.
//
//   TrainingPass<Bf16> pass(transformer, pool, {.recompute = Recompute::kNone});
//   pass.Forward(model, forest);                       // final hidden states, activations kept
//   pass.GatherHidden(model, rows, hidden);            // normed rows that the head multiplies
//   ... head and loss ...
//   pass.Backward(model, transposed, rows, d_hidden, sink);
//
// The forward pass runs the same stages and kernels as the engine: a token's hidden state has the bits it had when it
// was sampled. Gradients go to a sink in float32 tiles; sums over rows run in fixed tiles and fixed order, so they do
// not depend on threads.
//
// Thread contract: one thread owns the pass; it uses the pool inside.
#ifndef LOCKSTEP_MODEL_TRAINING_PASS_H_
#define LOCKSTEP_MODEL_TRAINING_PASS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/kernels/attention_plan.h"
#include "model/packed_model.h"
#include "model/parameters.h"
#include "model/transformer.h"
#include "runtime/base/thread_pool.h"

namespace lockstep::model {

// Receives gradients in the flat layout of Parameters. Add is called from several threads, for disjoint ranges at a
// time; a range may come more than once in a pass (a tied embedding gets the head's gradient and the input's), one
// after the other in fixed order.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  virtual void Add(int64_t offset, absl::Span<const float> values) = 0;
};

// What is kept of a layer between forward and backward.
enum class Recompute : uint8_t {
  kNone,   // everything: fastest
  kLayer,  // only its input; the layer's forward runs once more before its backward
};

struct ForestView {
  absl::Span<const int32_t> token_ids;     // [tokens]
  absl::Span<const int32_t> position_ids;  // [tokens]
  absl::Span<const int32_t> subtree_end;   // [tokens]
};

template <typename T>
class TrainingPass {
 public:
  TrainingPass(const Transformer<T>& transformer, ThreadPool& pool, Recompute recompute);

  // keep_activations false: only the hidden states are wanted (log-probs without gradient).
  void Forward(const PackedModel<T>& model, const ForestView& forest, bool keep_activations = true);

  // Final-norm rows of the forest, in the order of `rows`.    hidden // [rows, hidden] T
  void GatherHidden(const PackedModel<T>& model, absl::Span<const int32_t> rows, Matrix<T> hidden);

  // d_hidden // [rows, hidden] f32: gradient of the loss with respect to what GatherHidden gave. Rows may repeat.
  void Backward(const PackedModel<T>& model, const TransposedModel<T>& transposed, absl::Span<const int32_t> rows,
                Matrix<const float> d_hidden, const ParameterLayout& layout, GradientSink& sink);

  // Bytes held for a forest of `rows` tokens.
  static int64_t ActivationBytes(const ModelConfig& config, int64_t rows, Recompute recompute);

 private:
  struct LayerState {
    OwnedMatrix<T> q, k, v, raw_qk, attention, gate_up;
    OwnedMatrix<float> x_mid, lse;
    std::vector<float> attention_inv_rms, mlp_inv_rms;
    void Resize(const ModelConfig& config, int64_t rows);
  };
  // Buffers of the backward pass of one layer, [rows, ...].
  struct BackwardState {
    OwnedMatrix<float> dx, d_attention, dq, dk, dv;
    OwnedMatrix<T> dy, d_gate_up, act, mlp_normed, d_mid, d_qkv, attention_normed;
    void Resize(const Dimensions& size, int64_t rows);
  };
  // Scratch of one thread.
  struct ThreadState {
    TileScratch<T> tile;
    OwnedMatrix<float> wide, narrow, weight;
    OwnedMatrix<T> gate_up;
  };

  void ForwardLayer(const PackedLayer<T>& layer, Matrix<const float> x, LayerState& state, Matrix<float> x_out);
  void BackwardMlp(const PackedLayer<T>& layer, const typename TransposedModel<T>::Layer& transposed,
                   LayerState& state);
  void BackwardAttention(LayerState& state);
  void BackwardInput(const PackedLayer<T>& layer, const typename TransposedModel<T>::Layer& transposed,
                     Matrix<const float> x, LayerState& state);
  void QkvBackward(const PackedLayer<T>& layer, LayerState& state, int64_t begin, int64_t end, float* partial);
  void BackwardEmbedding(const ParameterLayout& layout, GradientSink& sink);
  // Gradient of rows [0, dw rows) of a parameter whose output gradient is columns [column, ...) of dy.
  struct WeightTask {
    Matrix<const T> dy;
    int64_t column;
    Matrix<const T> x;
    int64_t offset, row_begin, row_end;  // parameter offset; rows of the parameter
  };
  void AddWeightTasks(Matrix<const T> dy, int64_t column, Matrix<const T> x, const ParameterLayout::Entry& entry,
                      std::vector<WeightTask>& tasks);
  void RunWeightTasks(const std::vector<WeightTask>& tasks, MatMulBackend backend, GradientSink& sink);
  // Adds up the tiles' partial sums in tile order, columns [begin, begin + count) of partials_, and hands them over.
  void AddPartials(int64_t begin, int64_t count, int64_t offset, GradientSink& sink);

  int64_t NumTiles() const { return (num_rows_ + kRowTile - 1) / kRowTile; }

  static constexpr int64_t kRowTile = 64;

  const Transformer<T>& transformer_;
  ThreadPool& pool_;
  const Recompute recompute_;
  int64_t num_rows_ = 0;
  std::vector<int32_t> token_ids_, positions_, identity_rows_;
  AttentionPlan plan_;
  std::vector<OwnedMatrix<float>> x_;  // residual stream before each layer, and the last one's output
  std::vector<LayerState> layers_;     // one per layer, or one in all
  BackwardState backward_;
  std::vector<ThreadState> threads_;
  OwnedMatrix<float> partials_;  // [tiles, widest vector parameter group]
};

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_TRAINING_PASS_H_
