#include "learner/packing.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/check.h"

namespace lockstep::learner {
namespace {

using Packs = std::vector<std::vector<int64_t>>;

Packs PackSequential(absl::Span<const int64_t> lengths, int64_t capacity) {
  Packs packs;
  int64_t room = 0;  // of the open pack, which is the last one; 0: none is open
  for (int64_t i = 0; i < static_cast<int64_t>(lengths.size()); ++i) {
    if (packs.empty() || lengths[i] > room) {
      packs.emplace_back();
      room = std::max<int64_t>(capacity, lengths[i]);
    }
    packs.back().push_back(i);
    room -= lengths[i];
  }
  return packs;
}

Packs PackFirstFitDecreasing(absl::Span<const int64_t> lengths, int64_t capacity) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
  Packs packs;
  std::vector<int64_t> room;
  for (int64_t i : order) {
    size_t pack = 0;
    while (pack < packs.size() && room[pack] < lengths[i]) ++pack;
    if (pack == packs.size()) {
      packs.emplace_back();
      room.push_back(std::max<int64_t>(capacity, lengths[i]));
    }
    packs[pack].push_back(i);
    room[pack] -= lengths[i];
  }
  return packs;
}

}  // namespace

Packs Pack(absl::Span<const int64_t> lengths, int64_t capacity, PackingStrategy strategy) {
  CHECK_GT(capacity, 0);
  for (int64_t length : lengths) CHECK_GT(length, 0);
  return strategy == PackingStrategy::kSequential ? PackSequential(lengths, capacity)
                                                  : PackFirstFitDecreasing(lengths, capacity);
}

}  // namespace lockstep::learner
