#include "learner/exact_sum.h"

#include <cmath>

namespace lockstep::learner {

RangeCheck AddExact(const float* values, int64_t count, int quantum_log2, int64_t* sums) {
  const double scale = std::ldexp(1.0, -quantum_log2);
  RangeCheck check;
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[i];
    const float magnitude = std::abs(value);
    if (!(magnitude <= 3.40282347e38f)) {
      check.finite = false;
      continue;
    }
    check.max_abs = magnitude > check.max_abs ? magnitude : check.max_abs;
    // A float32 times a power of two is exact in double. Beyond int64 the check below fails in any case: keep the cast
    // defined.
    const double scaled = static_cast<double>(value) * scale;
    const int64_t fixed = std::abs(scaled) < 0x1p62 ? static_cast<int64_t>(std::nearbyint(scaled)) : 0;
    sums[i] = static_cast<int64_t>(static_cast<uint64_t>(sums[i]) + static_cast<uint64_t>(fixed));
  }
  return check;
}

double LargestContribution(int quantum_log2, int64_t num_contributions) {
  return std::ldexp(1.0, 62 + quantum_log2) / static_cast<double>(num_contributions);
}

void ExactToFloat(const int64_t* sums, int64_t count, int quantum_log2, float* values) {
  const double quantum = std::ldexp(1.0, quantum_log2);
  for (int64_t i = 0; i < count; ++i) {
    // int64 to float is one rounding; the power of two is exact unless the result is subnormal.
    values[i] = static_cast<float>(sums[i]) * static_cast<float>(quantum);
  }
}

double BlockSumOfSquares(const float* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

}  // namespace lockstep::learner
