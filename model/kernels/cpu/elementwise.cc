#include "model/kernels/elementwise.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/kernels/cpu/elementwise.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "model/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::model::internal::HWY_NAMESPACE {

template <typename T>
void RmsNormForwardRows(Matrix<const float> x, const float* gain, float eps, Matrix<T> y, float* inv_rms) {
  const Float d;
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* from = x.row(r);
    Vec sum = hn::Zero(d);
    ForVectors(x.cols, [&](int64_t i, int64_t n) HWY_ATTR {
      const Vec v = LoadUpTo(from + i, n);
      sum = hn::MulAdd(v, v, sum);
    });
    const float inverse = 1.0f / std::sqrt(SumLanes(sum) / static_cast<float>(x.cols) + eps);
    if (inv_rms != nullptr) inv_rms[r] = inverse;
    const Vec scale = hn::Set(d, inverse);
    T* to = y.row(r);
    ForVectors(x.cols, [&](int64_t i, int64_t n) HWY_ATTR {
      const Vec normalised = hn::Mul(LoadUpTo(from + i, n), scale);
      StoreUpTo(hn::Mul(normalised, LoadUpTo(gain + i, n)), to + i, n);
    });
  }
}

// With n = x * inv_rms and g = dy * gain:  dx = inv_rms * (g - n * mean(g * n)),  dgain = sum over rows of dy * n.
void RmsNormBackwardRows(Matrix<const float> x, const float* gain, const float* inv_rms, Matrix<const float> dy,
                         Matrix<float> dx, float* dgain) {
  const Float d;
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* from = x.row(r);
    const float* grad = dy.row(r);
    float* to = dx.row(r);
    const Vec inverse = hn::Set(d, inv_rms[r]);
    Vec sum = hn::Zero(d);
    ForVectors(x.cols, [&](int64_t i, int64_t n) HWY_ATTR {
      const Vec normalised = hn::Mul(LoadUpTo(from + i, n), inverse);
      sum = hn::MulAdd(hn::Mul(LoadUpTo(grad + i, n), LoadUpTo(gain + i, n)), normalised, sum);
    });
    const Vec mean = hn::Set(d, SumLanes(sum) / static_cast<float>(x.cols));
    ForVectors(x.cols, [&](int64_t i, int64_t n) HWY_ATTR {
      const Vec normalised = hn::Mul(LoadUpTo(from + i, n), inverse);
      const Vec g = LoadUpTo(grad + i, n);
      const Vec inner = hn::NegMulAdd(normalised, mean, hn::Mul(g, LoadUpTo(gain + i, n)));
      StoreUpTo(hn::MulAdd(inverse, inner, LoadUpTo(to + i, n)), to + i, n);
      StoreUpTo(hn::MulAdd(g, normalised, LoadUpTo(dgain + i, n)), dgain + i, n);
    });
  }
}

HWY_INLINE Vec Sigmoid(Vec x) {
  const Float d;
  const Vec one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, ExpAny(hn::Neg(x))));
}

template <typename T>
void SwiGluForwardRows(Matrix<const T> gate_up, Matrix<T> act) {
  for (int64_t r = 0; r < act.rows; ++r) {
    const T* gate = gate_up.row(r);
    const T* up = gate + act.cols;
    T* to = act.row(r);
    ForVectors(act.cols, [&](int64_t i, int64_t n) HWY_ATTR {
      const Vec g = LoadUpTo(gate + i, n);
      StoreUpTo(hn::Mul(hn::Mul(g, Sigmoid(g)), LoadUpTo(up + i, n)), to + i, n);
    });
  }
}

template <typename T>
void SwiGluBackwardRows(Matrix<const T> gate_up, Matrix<const float> d_act, Matrix<T> d_gate_up, Matrix<T> act) {
  const Float d;
  const Vec one = hn::Set(d, 1.0f);
  for (int64_t r = 0; r < act.rows; ++r) {
    const T* gate = gate_up.row(r);
    const T* up = gate + act.cols;
    const float* grad = d_act.row(r);
    T* d_gate = d_gate_up.row(r);
    T* d_up = d_gate + act.cols;
    T* to = act.row(r);
    ForVectors(act.cols, [&](int64_t i, int64_t n) HWY_ATTR {
      const Vec g = LoadUpTo(gate + i, n);
      const Vec u = LoadUpTo(up + i, n);
      const Vec da = LoadUpTo(grad + i, n);
      const Vec sigmoid = Sigmoid(g);
      const Vec silu = hn::Mul(g, sigmoid);
      StoreUpTo(hn::Mul(silu, u), to + i, n);
      StoreUpTo(hn::Mul(da, silu), d_up + i, n);
      // silu'(g) = sigmoid * (1 + g * (1 - sigmoid))
      const Vec slope = hn::Mul(sigmoid, hn::MulAdd(g, hn::Sub(one, sigmoid), one));
      StoreUpTo(hn::Mul(hn::Mul(da, u), slope), d_gate + i, n);
    });
  }
}

void AddRowsOf(Matrix<const float> x, Matrix<const float> delta, Matrix<float> y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    ForVectors(x.cols, [&](int64_t i, int64_t n) HWY_ATTR {
      StoreUpTo(hn::Add(LoadUpTo(x.row(r) + i, n), LoadUpTo(delta.row(r) + i, n)), y.row(r) + i, n);
    });
  }
}

template <typename T>
void ConvertRowsTo(Matrix<const float> from, Matrix<T> to) {
  for (int64_t r = 0; r < from.rows; ++r) {
    ForVectors(from.cols,
               [&](int64_t i, int64_t n) HWY_ATTR { StoreUpTo(LoadUpTo(from.row(r) + i, n), to.row(r) + i, n); });
  }
}

// HWY_EXPORT wants plain functions.
void RmsNormForwardF32(Matrix<const float> x, const float* gain, float eps, Matrix<float> y, float* inv_rms) {
  RmsNormForwardRows(x, gain, eps, y, inv_rms);
}
void RmsNormForwardBf16(Matrix<const float> x, const float* gain, float eps, Matrix<Bf16> y, float* inv_rms) {
  RmsNormForwardRows(x, gain, eps, y, inv_rms);
}
void SwiGluForwardF32(Matrix<const float> gate_up, Matrix<float> act) { SwiGluForwardRows(gate_up, act); }
void SwiGluForwardBf16(Matrix<const Bf16> gate_up, Matrix<Bf16> act) { SwiGluForwardRows(gate_up, act); }
void SwiGluBackwardF32(Matrix<const float> gate_up, Matrix<const float> d_act, Matrix<float> d_gate_up,
                       Matrix<float> act) {
  SwiGluBackwardRows(gate_up, d_act, d_gate_up, act);
}
void SwiGluBackwardBf16(Matrix<const Bf16> gate_up, Matrix<const float> d_act, Matrix<Bf16> d_gate_up,
                        Matrix<Bf16> act) {
  SwiGluBackwardRows(gate_up, d_act, d_gate_up, act);
}
void ConvertRowsF32(Matrix<const float> from, Matrix<float> to) { ConvertRowsTo(from, to); }
void ConvertRowsBf16(Matrix<const float> from, Matrix<Bf16> to) { ConvertRowsTo(from, to); }

}  // namespace lockstep::model::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::model {
namespace internal {
HWY_EXPORT(RmsNormForwardF32);
HWY_EXPORT(RmsNormForwardBf16);
HWY_EXPORT(RmsNormBackwardRows);
HWY_EXPORT(SwiGluForwardF32);
HWY_EXPORT(SwiGluForwardBf16);
HWY_EXPORT(SwiGluBackwardF32);
HWY_EXPORT(SwiGluBackwardBf16);
HWY_EXPORT(AddRowsOf);
HWY_EXPORT(ConvertRowsF32);
HWY_EXPORT(ConvertRowsBf16);
}  // namespace internal

using namespace internal;  // NOLINT: the dispatch macros name tables of that namespace

template <>
void RmsNormForward<float>(Matrix<const float> x, const float* gain, float eps, Matrix<float> y, float* inv_rms) {
  HWY_DYNAMIC_DISPATCH(RmsNormForwardF32)(x, gain, eps, y, inv_rms);
}
template <>
void RmsNormForward<Bf16>(Matrix<const float> x, const float* gain, float eps, Matrix<Bf16> y, float* inv_rms) {
  HWY_DYNAMIC_DISPATCH(RmsNormForwardBf16)(x, gain, eps, y, inv_rms);
}
void RmsNormBackward(Matrix<const float> x, const float* gain, const float* inv_rms, Matrix<const float> dy,
                     Matrix<float> dx, float* dgain) {
  HWY_DYNAMIC_DISPATCH(RmsNormBackwardRows)(x, gain, inv_rms, dy, dx, dgain);
}
template <>
void SwiGluForward<float>(Matrix<const float> gate_up, Matrix<float> act) {
  HWY_DYNAMIC_DISPATCH(SwiGluForwardF32)(gate_up, act);
}
template <>
void SwiGluForward<Bf16>(Matrix<const Bf16> gate_up, Matrix<Bf16> act) {
  HWY_DYNAMIC_DISPATCH(SwiGluForwardBf16)(gate_up, act);
}
template <>
void SwiGluBackward<float>(Matrix<const float> gate_up, Matrix<const float> d_act, Matrix<float> d_gate_up,
                           Matrix<float> act) {
  HWY_DYNAMIC_DISPATCH(SwiGluBackwardF32)(gate_up, d_act, d_gate_up, act);
}
template <>
void SwiGluBackward<Bf16>(Matrix<const Bf16> gate_up, Matrix<const float> d_act, Matrix<Bf16> d_gate_up,
                          Matrix<Bf16> act) {
  HWY_DYNAMIC_DISPATCH(SwiGluBackwardBf16)(gate_up, d_act, d_gate_up, act);
}
void AddRows(Matrix<const float> x, Matrix<const float> delta, Matrix<float> y) {
  HWY_DYNAMIC_DISPATCH(AddRowsOf)(x, delta, y);
}
template <>
void ConvertRows<float>(Matrix<const float> from, Matrix<float> to) {
  HWY_DYNAMIC_DISPATCH(ConvertRowsF32)(from, to);
}
template <>
void ConvertRows<Bf16>(Matrix<const float> from, Matrix<Bf16> to) {
  HWY_DYNAMIC_DISPATCH(ConvertRowsBf16)(from, to);
}

}  // namespace lockstep::model
#endif
