#include "learner/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lockstep::learner {

namespace {

// Any value, any quantum.
RangeCheck AddExactSlowly(const float* values, int64_t count, double scale, int64_t* sums) {
  RangeCheck check;
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[i];
    const float magnitude = std::abs(value);
    if (!(magnitude <= std::numeric_limits<float>::max())) {
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

// Values within 2^51 quanta: adding 1.5 * 2^52 rounds to a whole number, to nearest even, and leaves it in the lower
// bits of the double. The compiler makes vectors of it on any x86-64.
void AddExactQuickly(const float* values, int64_t count, double scale, int64_t* sums) {
  constexpr double kShift = 0x1.8p52;
  for (int64_t i = 0; i < count; ++i) {
    const double shifted = static_cast<double>(values[i]) * scale + kShift;
    const uint64_t fixed = std::bit_cast<uint64_t>(shifted) - std::bit_cast<uint64_t>(kShift);
    sums[i] = static_cast<int64_t>(static_cast<uint64_t>(sums[i]) + fixed);
  }
}

// Largest magnitude, compared as bits: NaN and infinity are above every finite value.
float LargestMagnitude(const float* values, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<int32_t>(std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
    largest = bits > largest ? bits : largest;
  }
  return std::bit_cast<float>(largest);
}

}  // namespace

RangeCheck AddExact(const float* values, int64_t count, int quantum_log2, int64_t* sums) {
  constexpr int64_t kBlock = 512;
  const double scale = std::ldexp(1.0, -quantum_log2);
  RangeCheck check;
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t block = std::min(kBlock, count - at);
    const float largest = LargestMagnitude(values + at, block);
    if (static_cast<double>(largest) * scale <= 0x1p51) {  // false for NaN
      AddExactQuickly(values + at, block, scale, sums + at);
      check.Join({largest, true});
    } else {
      check.Join(AddExactSlowly(values + at, block, scale, sums + at));
    }
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
