#include "model/kernels/rope.h"

#include <cmath>
#include <numbers>

#include "runtime/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/kernels/cpu/rope.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "model/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::model::internal::HWY_NAMESPACE {

// (a, b) -> (a cos - b sin, b cos + a sin), two roundings each.
HWY_INLINE void Turn(Vec& a, Vec& b, Vec cos, Vec sin) {
  const Vec turned = hn::NegMulAdd(b, sin, hn::Mul(a, cos));
  b = hn::MulAdd(a, sin, hn::Mul(b, cos));
  a = turned;
}

void TurnHalves(const float* cos, const float* sin, float sign, int64_t num_heads, int64_t head_dim, float* heads) {
  const Float d;
  const int64_t half = head_dim / 2;
  const Vec signs = hn::Set(d, sign);
  for (int64_t head = 0; head < num_heads; ++head, heads += head_dim) {
    ForVectors(half, [&](int64_t i, int64_t n) HWY_ATTR {
      Vec a = LoadUpTo(heads + i, n);
      Vec b = LoadUpTo(heads + half + i, n);
      Turn(a, b, LoadUpTo(cos + i, n), hn::Mul(LoadUpTo(sin + i, n), signs));
      StoreUpTo(a, heads + i, n);
      StoreUpTo(b, heads + half + i, n);
    });
  }
}

void TurnNeighbours(const float* cos, const float* sin, float sign, int64_t num_heads, int64_t head_dim, float* heads) {
  const Float d;
  const int64_t half = head_dim / 2;
  const Vec signs = hn::Set(d, sign);
  alignas(64) float pairs[32];
  for (int64_t head = 0; head < num_heads; ++head, heads += head_dim) {
    ForVectors(half, [&](int64_t i, int64_t n) HWY_ATTR {
      for (int64_t j = 0; j < 2 * n; ++j) pairs[j] = heads[2 * i + j];
      Vec a, b;
      hn::LoadInterleaved2(d, pairs, a, b);
      Turn(a, b, LoadUpTo(cos + i, n), hn::Mul(LoadUpTo(sin + i, n), signs));
      hn::StoreInterleaved2(a, b, d, pairs);
      for (int64_t j = 0; j < 2 * n; ++j) heads[2 * i + j] = pairs[j];
    });
  }
}

}  // namespace lockstep::model::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::model {
namespace internal {
HWY_EXPORT(TurnHalves);
HWY_EXPORT(TurnNeighbours);

void Turn(const RopeTable& table, int64_t position, float sign, int64_t num_heads, float* heads) {
  CHECK(position >= 0 && position < table.max_positions());
  const float* cos = table.cos(position);
  const float* sin = table.sin(position);
  if (table.pairing() == RopePairing::kHalves) {
    HWY_DYNAMIC_DISPATCH(TurnHalves)(cos, sin, sign, num_heads, table.head_dim(), heads);
  } else {
    HWY_DYNAMIC_DISPATCH(TurnNeighbours)(cos, sin, sign, num_heads, table.head_dim(), heads);
  }
}
}  // namespace internal

double RopeFrequency(const RopeParameters& p, int64_t pair) {
  const double frequency = std::pow(p.theta, -2.0 * static_cast<double>(pair) / static_cast<double>(p.head_dim));
  switch (p.scaling) {
    case RopeParameters::Scaling::kNone:
      return frequency;
    case RopeParameters::Scaling::kLinear:
      return frequency / p.factor;
    case RopeParameters::Scaling::kLlama3:
      break;
  }
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = static_cast<double>(p.original_max_positions);
  if (wavelength < original / p.high_freq_factor) return frequency;
  if (wavelength > original / p.low_freq_factor) return frequency / p.factor;
  const double blend = (original / wavelength - p.low_freq_factor) / (p.high_freq_factor - p.low_freq_factor);
  return (1 - blend) * frequency / p.factor + blend * frequency;
}

RopeTable::RopeTable(const RopeParameters& parameters)
    : head_dim_(parameters.head_dim),
      max_positions_(parameters.max_positions),
      pairing_(parameters.pairing),
      table_(static_cast<size_t>(parameters.max_positions * parameters.head_dim) * sizeof(float)) {
  CHECK(head_dim_ > 0 && head_dim_ % 2 == 0);
  CHECK_GT(max_positions_, 0);
  const int64_t half = head_dim_ / 2;
  for (int64_t pair = 0; pair < half; ++pair) {
    const double frequency = RopeFrequency(parameters, pair);
    for (int64_t position = 0; position < max_positions_; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      float* row = table_.as<float>() + position * head_dim_;
      row[pair] = static_cast<float>(std::cos(angle));
      row[half + pair] = static_cast<float>(std::sin(angle));
    }
  }
}

void RopeForward(const RopeTable& table, int64_t position, int64_t num_heads, float* heads) {
  internal::Turn(table, position, 1.0f, num_heads, heads);
}
void RopeBackward(const RopeTable& table, int64_t position, int64_t num_heads, float* heads) {
  internal::Turn(table, position, -1.0f, num_heads, heads);
}

}  // namespace lockstep::model
#endif
