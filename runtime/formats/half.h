// IEEE 754 binary16 ("half") as files store it.
#ifndef LOCKSTEP_RUNTIME_FORMATS_HALF_H_
#define LOCKSTEP_RUNTIME_FORMATS_HALF_H_

#include <bit>
#include <cstdint>

namespace lockstep::formats {

// Exact: every half is a float32. NaN payloads are kept in the upper bits.
inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

}  // namespace lockstep::formats

#endif  // LOCKSTEP_RUNTIME_FORMATS_HALF_H_
