// The matrix products of a model and nothing else: the ceiling that decoding and training are measured against. Weights
// are the model's own and are read once a pass, as in a real one, so the way from memory is part of the time.
//
// Thread contract: one thread owns an object; it uses the pool inside.
#ifndef LOCKSTEP_SCRIPTS_BENCH_BARE_PRODUCTS_H_
#define LOCKSTEP_SCRIPTS_BENCH_BARE_PRODUCTS_H_

#include <cstdint>

#include "model/load.h"
#include "model/packed_model.h"
#include "runtime/base/thread_pool.h"
#include "runtime/device/tensor.h"

namespace lockstep::bench {

class BareProducts {
 public:
  // `rows` of activations at a time, all of them bf16.
  BareProducts(const model::LoadedModel& model, model::MatMulBackend backend, int64_t rows, ThreadPool& pool);

  // Seconds of one pass over all layers and the vocabulary head.
  double Forward();
  // Seconds of forward, input gradients and weight gradients.
  double ForwardBackward();

 private:
  void Multiply(Team& team, const model::PackedMatrix<Bf16>& w);
  void WeightGradients(const model::PackedMatrix<Bf16>& w);

  const int64_t rows_;
  ThreadPool& pool_;
  model::PackedLayout layout_;
  Buffer packed_;
  model::PackedModel<Bf16> model_;
  model::TransposedModel<Bf16> transposed_;
  Buffer x_, y_;                   // [rows, widest] bf16, f32
  std::vector<Buffer> gradients_;  // one a thread
};

}  // namespace lockstep::bench

#endif  // LOCKSTEP_SCRIPTS_BENCH_BARE_PRODUCTS_H_
