// The vocabulary end of the model: logits of chosen rows, their log-probs and the gradient, in chunks. No [tokens,
// vocab] array ever exists.
//
// Thread contract: one thread owns a Head; it uses the pool inside.
#ifndef LOCKSTEP_MODEL_HEAD_H_
#define LOCKSTEP_MODEL_HEAD_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/kernels/logits.h"
#include "model/packed_model.h"
#include "model/training_pass.h"
#include "runtime/base/thread_pool.h"

namespace lockstep::model {

// One row to score: which id, under which distribution.
struct HeadTarget {
  int32_t id = 0;
  float temperature = 1;
  LogitFilter filter;
};

template <typename T>
class Head {
 public:
  Head(const ModelConfig& config, ThreadPool& pool);

  // logprobs[i], entropies[i] (may be empty): of targets[i] given row i of `hidden` ([rows, hidden] T, final-normed).
  // The bits are those the sampler reports for equal hidden rows, weights and targets.
  void LogProbs(const PackedModel<T>& model, Matrix<const T> hidden, absl::Span<const HeadTarget> targets,
                absl::Span<float> logprobs, absl::Span<float> entropies);

  // d_logprobs, d_entropies (may be empty): gradients of the loss by what LogProbs gave.
  //   d_hidden // [rows, hidden] f32, overwritten;   the head's weight gradient goes to the sink.
  void Backward(const PackedModel<T>& model, const TransposedModel<T>& transposed, Matrix<const T> hidden,
                absl::Span<const HeadTarget> targets, absl::Span<const float> d_logprobs,
                absl::Span<const float> d_entropies, Matrix<float> d_hidden, const ParameterLayout& layout,
                GradientSink& sink);

 private:
  // Row i's logits for rows [begin, end) of hidden, in the thread's buffer.
  Matrix<float> Logits(const PackedModel<T>& model, Matrix<const T> hidden, int thread);

  const ModelConfig config_;
  ThreadPool& pool_;
  std::vector<OwnedMatrix<float>> logits_;  // per thread
  std::vector<OwnedMatrix<float>> weight_;  // per thread
  OwnedMatrix<T> d_logits_;                 // [chunk, vocab]
};

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_HEAD_H_
