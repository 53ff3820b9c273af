// Which weights computed something: a counter of publications (one a step, also when its update was skipped) and a
// content hash.
#ifndef LOCKSTEP_RUNTIME_DATA_WEIGHT_VERSION_H_
#define LOCKSTEP_RUNTIME_DATA_WEIGHT_VERSION_H_

#include <cstdint>

namespace lockstep {

struct WeightVersion {
  int64_t number = 0;  // 0: the weights training began from
  uint64_t hash = 0;   // XXH3-64 of the float32 master weights in name order
  friend bool operator==(const WeightVersion&, const WeightVersion&) = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_DATA_WEIGHT_VERSION_H_
