#include "model/kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
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
  MatMulBackend backend;
  std::vector<float> weights;  // [n, k]
  std::vector<T> x;            // [rows, k]
  std::vector<T> packed, packed_transposed;

  Problem(int64_t rows, int64_t n, int64_t k, MatMulBackend backend = MatMulBackend::kOwn)
      : rows(rows), n(n), k(k), backend(backend), weights(n * k), x(rows * k) {
    for (int64_t i = 0; i < n * k; ++i) weights[i] = Normalish(i);
    for (int64_t i = 0; i < rows * k; ++i) x[i] = As<T>(Normalish(i + 1000000));
    packed.resize(PackedSize(n, k, backend));
    packed_transposed.resize(PackedSize(k, n, backend));
    Team one = TeamOfOne();
    // Two stacked blocks give the same as one.
    const int64_t upper = n / 3;
    const WeightRows blocks[] = {{weights.data(), upper}, {weights.data() + upper * k, n - upper}};
    PackWeights<T>(one, blocks, k, packed.data(), backend);
    PackTransposed<T>(one, blocks, k, packed_transposed.data(), backend);
  }
  Matrix<const T> X() const { return Matrix<const T>(x.data(), rows, k); }
  PackedMatrix<T> W() const { return PackedMatrix<T>(packed.data(), n, k, backend); }
  PackedMatrix<T> Transposed() const { return PackedMatrix<T>(packed_transposed.data(), k, n, backend); }
  double Weight(int64_t i, int64_t j) const { return ToFloat(As<T>(weights[i * k + j])); }
};

template <typename T, MatMulBackend backend>
struct Case {
  using Element = T;
  static constexpr MatMulBackend kBackend = backend;
};

// The bound on a sum of k terms holds for any order of additions in float32, fused or not, so for both backends:
// products of bf16 values are exact, each of at most 2 k roundings (product, sum) is by 2^-24 of a partial sum, and no
// partial sum exceeds the sum of the magnitudes.
constexpr double SumTolerance(int64_t k, double magnitude) {
  return 2 * static_cast<double>(k) * 0x1p-24 * magnitude + 1e-30;
}

template <typename C>
class MatMulTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (C::kBackend == MatMulBackend::kOwn) return;
    const absl::Status usable = CheckOneDnn(DTypeOf<typename C::Element>::value, 48, 64);
    if (!usable.ok()) GTEST_SKIP() << "SKIPPED: " << usable.message();
  }
};
using Cases = ::testing::Types<Case<float, MatMulBackend::kOwn>, Case<Bf16, MatMulBackend::kOwn>,
                               Case<float, MatMulBackend::kOneDnn>, Case<Bf16, MatMulBackend::kOneDnn>>;
TYPED_TEST_SUITE(MatMulTest, Cases);

TYPED_TEST(MatMulTest, AgreesWithDoubleReference) {
  using T = typename TypeParam::Element;
  for (const auto& [rows, n, k] :
       {std::tuple{1, 5, 3}, {7, 48, 129}, {13, 100, 300}, {130, 49, 257}, {20, 1024, 64}, {9, 1536, 128}}) {
    const Problem<T> p(rows, n, k, TypeParam::kBackend);
    std::vector<float> y(rows * n);
    Team one = TeamOfOne();
    MatMul<T, float>(one, p.X(), p.W(), Matrix<float>(y.data(), rows, n));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        double want = 0, magnitude = 0;
        for (int64_t i = 0; i < k; ++i) {
          const double term = static_cast<double>(ToFloat(p.x[r * k + i])) * p.Weight(j, i);
          want += term;
          magnitude += std::abs(term);
        }
        ASSERT_NEAR(y[r * n + j], want, SumTolerance(k, magnitude)) << rows << " " << n << " " << k;
      }
    }
  }
}

TYPED_TEST(MatMulTest, ARowDoesNotDependOnItsNeighboursNorOnThreads) {
  using T = typename TypeParam::Element;
  const int64_t rows = 133, n = 200, k = 311;
  Problem<T> p(rows, n, k, TypeParam::kBackend);
  std::vector<float> together(rows * n), threaded(rows * n), alone(n);
  Team one = TeamOfOne();
  MatMul<T, float>(one, p.X(), p.W(), Matrix<float>(together.data(), rows, n));
  for (int threads : {2, 3}) {
    ThreadPool pool(threads);
    pool.Run([&](Team& team) { MatMul<T, float>(team, p.X(), p.W(), Matrix<float>(threaded.data(), rows, n)); });
    EXPECT_EQ(together, threaded);
  }
  for (int64_t r = 0; r < rows; ++r) {
    MatMul<T, float>(one, p.X().Rows(r, r + 1), p.W(), Matrix<float>(alone.data(), 1, n));
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + r * n)) << "row " << r;
  }
}

TYPED_TEST(MatMulTest, AddsToWhatIsThere) {
  using T = typename TypeParam::Element;
  const Problem<T> p(5, 70, 96, TypeParam::kBackend);
  std::vector<float> y(5 * 70, 1.0f), set(5 * 70);
  Team one = TeamOfOne();
  MatMul<T, float>(one, p.X(), p.W(), Matrix<float>(set.data(), 5, 70));
  MatMul<T, float>(one, p.X(), p.W(), Matrix<float>(y.data(), 5, 70), Store::kAdd);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 1.0f + set[i]);
}

TYPED_TEST(MatMulTest, ReadsAndWritesRowsApart) {
  using T = typename TypeParam::Element;
  const int64_t rows = 21, n = 70, k = 64;
  const Problem<T> p(rows, n, k, TypeParam::kBackend);
  std::vector<T> wide(rows * 100);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(p.x.begin() + r * k, k, wide.begin() + r * 100 + 5);
  std::vector<float> want(rows * n), y(rows * 90, -7.0f);
  Team one = TeamOfOne();
  MatMul<T, float>(one, p.X(), p.W(), Matrix<float>(want.data(), rows, n));
  MatMul<T, float>(one, Matrix<const T>(wide.data() + 5, rows, k, 100), p.W(),
                   Matrix<float>(y.data() + 3, rows, n, 90));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < 90; ++j) {
      ASSERT_EQ(y[r * 90 + j], j >= 3 && j < 3 + n ? want[r * n + j - 3] : -7.0f) << "row " << r << " column " << j;
    }
  }
}

TYPED_TEST(MatMulTest, TransposedPackingGivesTheInputGradient) {
  using T = typename TypeParam::Element;
  const int64_t rows = 6, n = 75, k = 52;
  const Problem<T> p(rows, n, k, TypeParam::kBackend);
  std::vector<T> dy(rows * n);
  for (int64_t i = 0; i < rows * n; ++i) dy[i] = As<T>(Normalish(i + 77));
  std::vector<float> dx(rows * k);
  Team one = TeamOfOne();
  MatMul<T, float>(one, Matrix<const T>(dy.data(), rows, n), p.Transposed(), Matrix<float>(dx.data(), rows, k));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      double want = 0, magnitude = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double term = ToFloat(dy[r * n + j]) * p.Weight(j, i);
        want += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(dx[r * k + i], want, SumTolerance(n, magnitude));
    }
  }
}

TYPED_TEST(MatMulTest, WeightGradientAgreesWithDoubleReference) {
  using T = typename TypeParam::Element;
  const int64_t tokens = 300, n = 60, k = 53, begin = 16, count = 30;
  std::vector<T> dy(tokens * n), x(tokens * k);
  for (size_t i = 0; i < dy.size(); ++i) dy[i] = As<T>(Normalish(i));
  for (size_t i = 0; i < x.size(); ++i) x[i] = As<T>(Normalish(i + 5000000));
  std::vector<float> dw(count * k);
  WeightGradient<T>(Matrix<const T>(dy.data(), tokens, n), begin, Matrix<const T>(x.data(), tokens, k),
                    Matrix<float>(dw.data(), count, k), TypeParam::kBackend);
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      double want = 0, magnitude = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        const double term = static_cast<double>(ToFloat(dy[t * n + begin + r])) * ToFloat(x[t * k + i]);
        want += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(dw[r * k + i], want, SumTolerance(tokens, magnitude));
    }
  }
}

TEST(MatMul, InputSlicesAddUp) {
  const Problem<float> p(5, 70, 96);
  std::vector<float> set(5 * 70), lower(5 * 70), upper(5 * 70);
  Team one = TeamOfOne();
  MatMul<float, float>(one, p.X(), p.W(), Matrix<float>(set.data(), 5, 70));
  const Matrix<const float> x = p.X();
  MatMul<float, float>(one, x.Cols(0, 40), p.W().InputSlice(0, 40), Matrix<float>(lower.data(), 5, 70));
  MatMul<float, float>(one, x.Cols(40, 96), p.W().InputSlice(40, 96), Matrix<float>(upper.data(), 5, 70));
  for (size_t i = 0; i < set.size(); ++i) ASSERT_NEAR(lower[i] + upper[i], set[i], 1e-4);
}

class MatMulOf : public ::testing::TestWithParam<MatMulBackend> {
 protected:
  void SetUp() override {
    if (GetParam() == MatMulBackend::kOneDnn && !CheckOneDnn(DType::kBf16, 64, 64).ok()) {
      GTEST_SKIP() << "SKIPPED: oneDNN has no bf16 product on this machine";
    }
  }
};

TEST_P(MatMulOf, Bf16OutputIsTheRoundedFloatOutput) {
  const Problem<Bf16> p(11, 130, 70, GetParam());
  std::vector<float> wide(11 * 130);
  std::vector<Bf16> narrow(11 * 130);
  Team one = TeamOfOne();
  MatMul<Bf16, float>(one, p.X(), p.W(), Matrix<float>(wide.data(), 11, 130));
  MatMul<Bf16, Bf16>(one, p.X(), p.W(), Matrix<Bf16>(narrow.data(), 11, 130));
  for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(narrow[i].bits, ToBf16(wide[i]).bits);
}

TEST_P(MatMulOf, NonFiniteValuesStayInTheirRow) {
  Problem<Bf16> p(10, 60, 40, GetParam());
  std::vector<float> clean(10 * 60), dirty(10 * 60);
  Team one = TeamOfOne();
  MatMul<Bf16, float>(one, p.X(), p.W(), Matrix<float>(clean.data(), 10, 60));
  p.x[4 * 40 + 3] = ToBf16(std::numeric_limits<float>::quiet_NaN());
  MatMul<Bf16, float>(one, p.X(), p.W(), Matrix<float>(dirty.data(), 10, 60));
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

INSTANTIATE_TEST_SUITE_P(Backends, MatMulOf, ::testing::Values(MatMulBackend::kOwn, MatMulBackend::kOneDnn),
                         [](const auto& info) { return std::string(MatMulBackendName(info.param)); });

}  // namespace
}  // namespace lockstep::model
