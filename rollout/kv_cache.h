// Paged keys and values: blocks of 64 positions, shared by reference count, one pool for all layers.
//
// A sequence holds a list of blocks; position p lies in row blocks[p / 64] * 64 + p % 64 of every layer's arrays.
// Samples of one prompt share its full blocks; the last, partly filled one is copied, since each sample goes on writing
// there. (PagedAttention: Kwon et al., 2023.)
//
// Thread contract: one thread allocates and frees; rows are written and read by the compute threads in between.
#ifndef LOCKSTEP_ROLLOUT_KV_CACHE_H_
#define LOCKSTEP_ROLLOUT_KV_CACHE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "model/packed_model.h"
#include "runtime/device/tensor.h"

namespace lockstep::rollout {

inline constexpr int64_t kBlockPositions = 64;
inline int64_t BlocksFor(int64_t positions) { return (positions + kBlockPositions - 1) / kBlockPositions; }

// Which blocks are in use, and by how many.
class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);
  ~BlockPool();  // CHECKs that every block came home
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  std::optional<int32_t> Allocate();  // nothing if none is free
  void AddReference(int32_t block);
  void Release(int32_t block);
  int32_t num_blocks() const { return static_cast<int32_t>(references_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }

 private:
  std::vector<int32_t> references_;  // [blocks]
  std::vector<int32_t> free_;        // lowest block last
};

// The memory itself.
template <typename T>
class KvArrays {
 public:
  KvArrays(const model::ModelConfig& config, int64_t num_blocks);
  static int64_t BytesPerBlock(const model::ModelConfig& config);
  Matrix<T> keys(int64_t layer) { return keys_[layer].view(); }  // [blocks * 64, key_value]
  Matrix<T> values(int64_t layer) { return values_[layer].view(); }
  // Copies the first `positions` rows of a block in all layers.
  void CopyBlock(int32_t from, int32_t to, int64_t positions);

 private:
  std::vector<OwnedMatrix<T>> keys_, values_;
};

}  // namespace lockstep::rollout

#endif  // LOCKSTEP_ROLLOUT_KV_CACHE_H_
