// One step of the engine's model: rows of any number of sequences go through all layers, keys and values are written to
// the paged cache, and the logits of the rows that want them come out. Decoding (one row a sequence) and prefill (many)
// are the same thing.
//
// Thread contract: one thread owns it; it uses the pool inside.
#ifndef LOCKSTEP_ROLLOUT_BATCH_FORWARD_H_
#define LOCKSTEP_ROLLOUT_BATCH_FORWARD_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "model/transformer.h"
#include "rollout/kv_cache.h"
#include "runtime/base/thread_pool.h"

namespace lockstep::rollout {

// Consecutive positions of one sequence: rows [row_begin, row_begin + count) of the batch.
struct BatchSegment {
  int64_t row_begin = 0;
  int64_t count = 0;
  int64_t first_position = 0;
  const int32_t* key_rows =
      nullptr;  // [first_position + count]: row of each position in the cache, the new ones included
};

struct Batch {
  std::vector<int32_t> token_ids;  // [rows]
  std::vector<int32_t> positions;  // [rows]
  std::vector<int32_t> kv_rows;    // [rows] where each row's key and value go
  std::vector<BatchSegment> segments;
  std::vector<int32_t> logit_rows;  // rows whose logits are wanted, ascending
  void Clear();
};

template <typename T>
class BatchForward {
 public:
  BatchForward(const model::Transformer<T>& transformer, ThreadPool& pool);
  // Returns the logits, [logit_rows, vocab] f32, valid until the next call.
  Matrix<const float> Run(const model::PackedModel<T>& model, const Batch& batch, KvArrays<T>& cache);

 private:
  void Layer(Team& team, const model::PackedLayer<T>& layer, const Batch& batch, Matrix<T> keys, Matrix<T> values,
             std::atomic<int64_t>& next_task);

  const model::Transformer<T>& transformer_;
  ThreadPool& pool_;
  std::vector<model::QueryTile> tiles_;
  model::TileScratch<T> scratch_;
  OwnedMatrix<float> x_, logits_;
  OwnedMatrix<T> q_, attention_, gate_up_, normed_;
};

}  // namespace lockstep::rollout

#endif  // LOCKSTEP_ROLLOUT_BATCH_FORWARD_H_
