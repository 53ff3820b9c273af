// Which items share a micro-batch. Pure functions of the lengths, so packs do not depend on ranks.
//
//   sequential  next-fit: one open pack; an item that does not fit closes it, a pack that is exactly full closes at
//               once; order is kept
//   binpack     first-fit decreasing: longest first (ties: earlier first), each into the first pack with room
// An item longer than the capacity becomes a pack of its own.
#ifndef LOCKSTEP_LEARNER_PACKING_H_
#define LOCKSTEP_LEARNER_PACKING_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lockstep::learner {

enum class PackingStrategy : uint8_t { kSequential, kBinpack };

// Items of each pack, by index.
std::vector<std::vector<int64_t>> Pack(absl::Span<const int64_t> lengths, int64_t capacity, PackingStrategy strategy);

}  // namespace lockstep::learner

#endif  // LOCKSTEP_LEARNER_PACKING_H_
