#include "rollout/kv_cache.h"

#include <cstring>

#include "runtime/base/check.h"

namespace lockstep::rollout {

BlockPool::BlockPool(int32_t num_blocks) : references_(num_blocks, 0) {
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

BlockPool::~BlockPool() { CHECK_EQ(num_free(), num_blocks()); }

std::optional<int32_t> BlockPool::Allocate() {
  if (free_.empty()) return std::nullopt;
  const int32_t block = free_.back();
  free_.pop_back();
  CHECK_EQ(references_[block], 0);
  references_[block] = 1;
  return block;
}

void BlockPool::AddReference(int32_t block) {
  CHECK_GT(references_[block], 0);
  ++references_[block];
}

void BlockPool::Release(int32_t block) {
  CHECK_GT(references_[block], 0);
  if (--references_[block] == 0) free_.push_back(block);
}

template <typename T>
KvArrays<T>::KvArrays(const model::ModelConfig& config, int64_t num_blocks) {
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    keys_.emplace_back(num_blocks * kBlockPositions, config.kv_size());
    values_.emplace_back(num_blocks * kBlockPositions, config.kv_size());
  }
}

template <typename T>
int64_t KvArrays<T>::BytesPerBlock(const model::ModelConfig& config) {
  return 2 * config.num_layers * kBlockPositions * config.kv_size() * static_cast<int64_t>(sizeof(T));
}

template <typename T>
void KvArrays<T>::CopyBlock(int32_t from, int32_t to, int64_t positions) {
  const auto copy = [&](Matrix<T> array) {
    std::memcpy(array.row(to * kBlockPositions), array.row(from * kBlockPositions),
                static_cast<size_t>(positions * array.cols) * sizeof(T));
  };
  for (size_t layer = 0; layer < keys_.size(); ++layer) {
    copy(keys_[layer].view());
    copy(values_[layer].view());
  }
}

template class KvArrays<float>;
template class KvArrays<Bf16>;

}  // namespace lockstep::rollout
