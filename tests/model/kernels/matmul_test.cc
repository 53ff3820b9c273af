#include "model/kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/base/philox.h"

namespace lockstep::model {
namespace {

float Normalish(int64_t index) {
  const RandomKey key{7, RandomPurpose::kTest};
  return static_cast<float>(UniformDouble(key, {.ordinal = index}) +
                            UniformDouble(key, {.ordinal = index, .sample = 1}) - 1.0);
}

template <typename T>
T As(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return ToBf16(value);
  }
}

template <typename T>
struct Problem {
  int64_t rows, n, k;
  std::vector<float> weights;  // [n, k]
  std::vector<T> x;            // [rows, k]
  std::vector<T> packed, packed_transposed;

  Problem(int64_t rows, int64_t n, int64_t k) : rows(rows), n(n), k(k), weights(n * k), x(rows * k) {
    for (int64_t i = 0; i < n * k; ++i) weights[i] = Normalish(i);
    for (int64_t i = 0; i < rows * k; ++i) x[i] = As<T>(Normalish(i + 1000000));
    packed.resize(PackedSize(n, k));
    packed_transposed.resize(PackedSize(k, n));
    Team one = TeamOfOne();
    // Two stacked blocks give the same as one.
    const int64_t upper = n / 3;
    const WeightRows blocks[] = {{weights.data(), upper}, {weights.data() + upper * k, n - upper}};
    PackWeights<T>(one, blocks, k, packed.data());
    PackTransposed<T>(one, blocks, k, packed_transposed.data());
  }
  Matrix<const T> X() const { return Matrix<const T>(x.data(), rows, k); }
  PackedMatrix<T> W() const { return PackedMatrix<T>(packed.data(), n, k); }
  double Weight(int64_t i, int64_t j) const { return ToFloat(As<T>(weights[i * k + j])); }
};

template <typename T>
class MatMulTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(MatMulTest, StorageTypes);

TYPED_TEST(MatMulTest, AgreesWithDoubleReference) {
  for (const auto& [rows, n, k] : {std::tuple{1, 5, 3}, {7, 48, 129}, {13, 100, 300}, {130, 49, 257}}) {
    const Problem<TypeParam> p(rows, n, k);
    std::vector<float> y(rows * n);
    Team one = TeamOfOne();
    MatMul<TypeParam, float>(one, p.X(), p.W(), Matrix<float>(y.data(), rows, n));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        double want = 0, magnitude = 0;
        for (int64_t i = 0; i < k; ++i) {
          const double term = static_cast<double>(ToFloat(p.x[r * k + i])) * p.Weight(j, i);
          want += term;
          magnitude += std::abs(term);
        }
        // A chain of k fused operations: each rounds by at most 2^-24 of a partial sum, and no partial sum exceeds
        // `magnitude`.
        ASSERT_NEAR(y[r * n + j], want, k * 0x1p-24 * magnitude + 1e-30) << rows << " " << n << " " << k;
      }
    }
  }
}

TYPED_TEST(MatMulTest, ARowDoesNotDependOnItsNeighboursNorOnThreads) {
  const int64_t rows = 133, n = 200, k = 311;
  Problem<TypeParam> p(rows, n, k);
  std::vector<float> together(rows * n), threaded(rows * n), alone(n);
  Team one = TeamOfOne();
  MatMul<TypeParam, float>(one, p.X(), p.W(), Matrix<float>(together.data(), rows, n));
  for (int threads : {2, 3}) {
    ThreadPool pool(threads);
    pool.Run(
        [&](Team& team) { MatMul<TypeParam, float>(team, p.X(), p.W(), Matrix<float>(threaded.data(), rows, n)); });
    EXPECT_EQ(together, threaded);
  }
  for (int64_t r = 0; r < rows; ++r) {
    MatMul<TypeParam, float>(one, p.X().Rows(r, r + 1), p.W(), Matrix<float>(alone.data(), 1, n));
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + r * n)) << "row " << r;
  }
}

TYPED_TEST(MatMulTest, APieceIsThatPartOfTheWhole) {
  const Problem<TypeParam> p(9, 150, 64);
  std::vector<float> whole(9 * 150), piece(9 * 54);
  Team one = TeamOfOne();
  MatMul<TypeParam, float>(one, p.X(), p.W(), Matrix<float>(whole.data(), 9, 150));
  MatMulPiece<TypeParam>(p.X(), p.W(), 96, 150, Matrix<float>(piece.data(), 9, 54));
  for (int64_t r = 0; r < 9; ++r) {
    for (int64_t j = 0; j < 54; ++j) ASSERT_EQ(piece[r * 54 + j], whole[r * 150 + 96 + j]);
  }
}

TYPED_TEST(MatMulTest, AddAndInputSlices) {
  const Problem<TypeParam> p(5, 70, 96);
  std::vector<float> y(5 * 70, 1.0f), set(5 * 70), lower(5 * 70), upper(5 * 70);
  Team one = TeamOfOne();
  MatMul<TypeParam, float>(one, p.X(), p.W(), Matrix<float>(set.data(), 5, 70));
  MatMul<TypeParam, float>(one, p.X(), p.W(), Matrix<float>(y.data(), 5, 70), Store::kAdd);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 1.0f + set[i]);
  const Matrix<const TypeParam> x = p.X();
  MatMul<TypeParam, float>(one, x.Cols(0, 40), p.W().InputSlice(0, 40), Matrix<float>(lower.data(), 5, 70));
  MatMul<TypeParam, float>(one, x.Cols(40, 96), p.W().InputSlice(40, 96), Matrix<float>(upper.data(), 5, 70));
  for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(lower[i] + upper[i], set[i], 1e-4);
}

TYPED_TEST(MatMulTest, TransposedPackingGivesTheInputGradient) {
  const int64_t rows = 6, n = 75, k = 52;
  const Problem<TypeParam> p(rows, n, k);
  std::vector<TypeParam> dy(rows * n);
  for (int64_t i = 0; i < rows * n; ++i) dy[i] = As<TypeParam>(Normalish(i + 77));
  std::vector<float> dx(rows * k);
  Team one = TeamOfOne();
  MatMul<TypeParam, float>(one, Matrix<const TypeParam>(dy.data(), rows, n),
                           PackedMatrix<TypeParam>(p.packed_transposed.data(), k, n),
                           Matrix<float>(dx.data(), rows, k));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      double want = 0;
      for (int64_t j = 0; j < n; ++j) want += ToFloat(dy[r * n + j]) * p.Weight(j, i);
      ASSERT_NEAR(dx[r * k + i], want, n * n * 0x1p-24);
    }
  }
}

TYPED_TEST(MatMulTest, WeightGradientAgreesWithDoubleReference) {
  const int64_t tokens = 300, n = 60, k = 53, begin = 16, count = 30;
  std::vector<TypeParam> dy(tokens * n), x(tokens * k);
  for (size_t i = 0; i < dy.size(); ++i) dy[i] = As<TypeParam>(Normalish(i));
  for (size_t i = 0; i < x.size(); ++i) x[i] = As<TypeParam>(Normalish(i + 5000000));
  std::vector<float> dw(count * k);
  WeightGradient<TypeParam>(Matrix<const TypeParam>(dy.data(), tokens, n), begin,
                            Matrix<const TypeParam>(x.data(), tokens, k), Matrix<float>(dw.data(), count, k));
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      double want = 0, magnitude = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        const double term = static_cast<double>(ToFloat(dy[t * n + begin + r])) * ToFloat(x[t * k + i]);
        want += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(dw[r * k + i], want, tokens * 0x1p-24 * magnitude);
    }
  }
}

TEST(MatMul, Bf16OutputIsTheRoundedFloatOutput) {
  const Problem<Bf16> p(11, 130, 70);
  std::vector<float> wide(11 * 130);
  std::vector<Bf16> narrow(11 * 130);
  Team one = TeamOfOne();
  MatMul<Bf16, float>(one, p.X(), p.W(), Matrix<float>(wide.data(), 11, 130));
  MatMul<Bf16, Bf16>(one, p.X(), p.W(), Matrix<Bf16>(narrow.data(), 11, 130));
  for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(narrow[i].bits, ToBf16(wide[i]).bits);
}

TEST(MatMul, NonFiniteValuesStayInTheirRow) {
  Problem<float> p(10, 60, 40);
  std::vector<float> clean(10 * 60), dirty(10 * 60);
  Team one = TeamOfOne();
  MatMul<float, float>(one, p.X(), p.W(), Matrix<float>(clean.data(), 10, 60));
  p.x[4 * 40 + 3] = std::numeric_limits<float>::quiet_NaN();
  MatMul<float, float>(one, p.X(), p.W(), Matrix<float>(dirty.data(), 10, 60));
  for (int64_t r = 0; r < 10; ++r) {
    for (int64_t j = 0; j < 60; ++j) {
      if (r == 4) {
        ASSERT_TRUE(std::isnan(dirty[r * 60 + j]));
      } else {
        ASSERT_EQ(dirty[r * 60 + j], clean[r * 60 + j]);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::model
