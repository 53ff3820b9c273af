// RMSNorm, SwiGLU, additions, conversions and embedding beside scalar references in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "model/kernels/elementwise.h"
#include "model/kernels/embedding.h"
#include "tests/model/kernels/test_values.h"

namespace lockstep::model {
namespace {

template <typename T>
class RowKernelsTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(RowKernelsTest, StorageTypes);

template <typename T>
Matrix<const T> View(const std::vector<T>& values, int64_t rows) {
  const int64_t cols = static_cast<int64_t>(values.size()) / rows;
  return Matrix<const T>(values.data(), rows, cols);
}
template <typename T>
Matrix<T> View(std::vector<T>& values, int64_t rows) {
  const int64_t cols = static_cast<int64_t>(values.size()) / rows;
  return Matrix<T>(values.data(), rows, cols);
}

TYPED_TEST(RowKernelsTest, RmsNormAgreesWithDoubleReference) {
  for (const int64_t cols : {2, 16, 37, 64, 576, 1000}) {
    const int64_t rows = 5;
    const std::vector<float> x = TestNormal<float>(rows * cols, 1, 3), gain = TestNormal<float>(cols, 2);
    std::vector<TypeParam> y(rows * cols);
    std::vector<float> inv_rms(rows);
    RmsNormForward<TypeParam>(View(x, rows), gain.data(), 1e-5f, View(y, rows), inv_rms.data());
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < cols; ++i) sum += static_cast<double>(x[r * cols + i]) * x[r * cols + i];
      const double inverse = 1 / std::sqrt(sum / cols + 1e-5);
      // A sum of squares loses at most one rounding a term, the root halves it; then five roundings.
      const double error = (cols / 2.0 + 5) * 0x1p-24;
      ASSERT_NEAR(inv_rms[r], inverse, error * inverse);
      for (int64_t i = 0; i < cols; ++i) {
        const double want = x[r * cols + i] * inverse * gain[i];
        ASSERT_NEAR(ToFloat(y[r * cols + i]), want, (error + kRounding<TypeParam>)*std::abs(want)) << cols;
      }
      std::vector<TypeParam> alone(cols);
      RmsNormForward<TypeParam>(View(x, rows).Rows(r, r + 1), gain.data(), 1e-5f, View(alone, 1), nullptr);
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + r * cols));
    }
  }
}

TEST(RowKernels, RmsNormBackwardAgreesWithFiniteDifferences) {
  const int64_t rows = 3, cols = 37;
  const std::vector<float> x = TestNormal<float>(rows * cols, 1), gain = TestNormal<float>(cols, 2),
                           dy = TestNormal<float>(rows * cols, 3), before = TestNormal<float>(rows * cols, 4);
  std::vector<float> y(rows * cols), inv_rms(rows), dx = before, dgain(cols, 0.5f);
  RmsNormForward<float>(View(x, rows), gain.data(), 1e-5f, View(y, rows), inv_rms.data());
  RmsNormBackward(View(x, rows), gain.data(), inv_rms.data(), View(dy, rows), View(dx, rows), dgain.data());
  const auto loss = [&](const std::vector<double>& at, const std::vector<double>& with_gain) {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t i = 0; i < cols; ++i) squares += at[r * cols + i] * at[r * cols + i];
      const double inverse = 1 / std::sqrt(squares / cols + 1e-5);
      for (int64_t i = 0; i < cols; ++i) sum += dy[r * cols + i] * at[r * cols + i] * inverse * with_gain[i];
    }
    return sum;
  };
  std::vector<double> at(x.begin(), x.end()), with_gain(gain.begin(), gain.end());
  const auto slope = [&](double& value) {
    const double h = 1e-5, kept = value;
    value = kept + h;
    const double above = loss(at, with_gain);
    value = kept - h;
    const double below = loss(at, with_gain);
    value = kept;
    return (above - below) / (2 * h);
  };
  // Values near 1, sums of 37 terms: about 40 roundings of 2^-24 at magnitudes up to 10.
  for (int64_t i = 0; i < rows * cols; ++i) ASSERT_NEAR(dx[i] - before[i], slope(at[i]), 3e-5) << i;
  for (int64_t i = 0; i < cols; ++i) ASSERT_NEAR(dgain[i] - 0.5f, slope(with_gain[i]), 3e-5) << i;
}

double Silu(double g) { return g / (1 + std::exp(-g)); }

TYPED_TEST(RowKernelsTest, SwiGluForwardAndBackward) {
  for (const int64_t cols : {1, 16, 23, 100, 1536}) {
    const int64_t rows = 2;
    std::vector<TypeParam> gate_up = TestNormal<TypeParam>(rows * 2 * cols, 5, 3);
    if (cols > 20) {
      gate_up[3] = RoundTo<TypeParam>(100);
      gate_up[4] = RoundTo<TypeParam>(-100);
    }
    const std::vector<float> d_act = TestNormal<float>(rows * cols, 6);
    std::vector<TypeParam> act(rows * cols), again(rows * cols), d_gate_up(rows * 2 * cols);
    SwiGluForward<TypeParam>(View(gate_up, rows), View(act, rows));
    SwiGluBackward<TypeParam>(View(gate_up, rows), View(d_act, rows), View(d_gate_up, rows), View(again, rows));
    EXPECT_EQ(act, again);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < cols; ++i) {
        const double g = ToFloat(gate_up[r * 2 * cols + i]), u = ToFloat(gate_up[r * 2 * cols + cols + i]);
        const double d = d_act[r * cols + i], s = 1 / (1 + std::exp(-g));
        // exp, the division and a few products: ten roundings; exp(-g) loses |g| 2^-24 of its value to its reduction.
        const double error = (10 + std::abs(g)) * 0x1p-24 + kRounding<TypeParam>;
        const double tiny = 1e-36;  // exp returns 0 or infinity beyond float's range
        ASSERT_NEAR(ToFloat(act[r * cols + i]), Silu(g) * u, error * std::abs(Silu(g) * u) + tiny);
        ASSERT_NEAR(ToFloat(d_gate_up[r * 2 * cols + cols + i]), d * Silu(g), error * std::abs(d * Silu(g)) + tiny);
        // 1 + g (1 - s) may cancel: its error is that of its terms.
        const double terms = std::abs(d * u) * s * (1 + std::abs(g * (1 - s)));
        ASSERT_NEAR(ToFloat(d_gate_up[r * 2 * cols + i]), d * u * s * (1 + g * (1 - s)), error * terms + tiny) << g;
      }
    }
  }
}

TEST(RowKernels, ConversionRoundsLikeToBf16) {
  std::vector<float> values;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      values.push_back(std::bit_cast<float>((high << 16) | low));
  }
  for (const int64_t count : {static_cast<int64_t>(values.size()), int64_t{7}, int64_t{17}}) {
    std::vector<Bf16> rounded(count);
    ConvertRows<Bf16>(Matrix<const float>(values.data(), 1, count), Matrix<Bf16>(rounded.data(), 1, count));
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(rounded[i].bits, ToBf16(values[i]).bits) << std::bit_cast<uint32_t>(values[i]);
  }
}

TEST(RowKernels, AddRowsInPlace) {
  std::vector<float> x = TestNormal<float>(3 * 19, 1);
  const std::vector<float> before = x, delta = TestNormal<float>(3 * 19, 2);
  AddRows(View(before, 3), View(delta, 3), View(x, 3));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], before[i] + delta[i]);
}

TYPED_TEST(RowKernelsTest, EmbeddingLooksUpAndAddsBackInRowOrder) {
  const int64_t vocab = 11, cols = 35;
  const std::vector<TypeParam> table = TestNormal<TypeParam>(vocab * cols, 1);
  const std::vector<int32_t> ids = {3, 10, 3, 0, 3};
  std::vector<float> x(ids.size() * cols);
  EmbeddingForward<TypeParam>(View(table, vocab), ids, View(x, 5));
  for (size_t r = 0; r < ids.size(); ++r) {
    for (int64_t i = 0; i < cols; ++i) ASSERT_EQ(x[r * cols + i], ToFloat(table[ids[r] * cols + i]));
  }
  const std::vector<float> dx = TestNormal<float>(5 * cols, 2);
  std::vector<float> whole = TestNormal<float>(vocab * cols, 3), in_pieces = whole, want = whole;
  EmbeddingBackward(ids, View(dx, 5), View(whole, vocab));
  EmbeddingBackward(ids, View(dx, 5).Cols(0, 20), View(in_pieces, vocab).Cols(0, 20));
  EmbeddingBackward(ids, View(dx, 5).Cols(20, cols), View(in_pieces, vocab).Cols(20, cols));
  for (size_t r = 0; r < ids.size(); ++r) {
    for (int64_t i = 0; i < cols; ++i) want[ids[r] * cols + i] += dx[r * cols + i];
  }
  EXPECT_EQ(whole, want);
  EXPECT_EQ(in_pieces, want);
}

}  // namespace
}  // namespace lockstep::model
