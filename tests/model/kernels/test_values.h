// Reproducible values for kernel tests.
#ifndef LOCKSTEP_TESTS_MODEL_KERNELS_TEST_VALUES_H_
#define LOCKSTEP_TESTS_MODEL_KERNELS_TEST_VALUES_H_

#include <cmath>
#include <cstdint>
#include <numbers>
#include <type_traits>
#include <vector>

#include "runtime/base/philox.h"
#include "runtime/device/tensor.h"

namespace lockstep::model {

inline double TestUniform(int64_t stream, int64_t index) {
  return UniformDouble(RandomKey{7, RandomPurpose::kTest}, {.ordinal = index, .sample = static_cast<int32_t>(stream)});
}

template <typename T>
T RoundTo(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return ToBf16(value);
  }
}

// Standard normal values times `scale`; another stream gives other values.
template <typename T>
std::vector<T> TestNormal(int64_t count, int64_t stream, double scale = 1) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - TestUniform(stream, 2 * i)));
    const double angle = 2 * std::numbers::pi * TestUniform(stream, 2 * i + 1);
    values[i] = RoundTo<T>(static_cast<float>(scale * radius * std::cos(angle)));
  }
  return values;
}

// The largest relative error of one rounding to T.
template <typename T>
constexpr double kRounding = std::is_same_v<T, float> ? 0x1p-24 : 0x1p-8;

}  // namespace lockstep::model

#endif  // LOCKSTEP_TESTS_MODEL_KERNELS_TEST_VALUES_H_
