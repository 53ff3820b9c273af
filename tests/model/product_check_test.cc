#include "model/product_check.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "model/kernel_signature.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace lockstep::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<ProductShape> kShapes = {{60, 48}, {200, 130}};

TEST(ProductCheck, KnowsAllProductsOfAModel) {
  const ModelConfig config = testing::TinyConfig(Architecture::kQwen2);
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (const ProductShape& shape : ProductShapes(config)) shapes.push_back({shape.n, shape.k});
  const std::vector<std::pair<int64_t, int64_t>> want = {{128, 48}, {48, 128}, {48, 64}, {64, 48},  {160, 48},
                                                         {48, 160}, {48, 80},  {80, 48}, {203, 48}, {48, 203}};
  EXPECT_EQ(shapes, want);
}

template <typename T>
void Product(Team& team, Matrix<const T> x, const PackedMatrix<T>& w, Matrix<float> y) {
  MatMul<T, float>(team, x, w, y);
}

TEST(ProductCheck, TheOwnProductPasses) {
  EXPECT_OK(CheckRowInvariance<float>(MatMulBackend::kOwn, kShapes, Product<float>));
  EXPECT_OK(CheckRowInvariance<Bf16>(MatMulBackend::kOwn, kShapes, Product<Bf16>));
}

TEST(ProductCheck, OneDnnPassesWithAvx512) {
  if (OneDnnSignature().find("avx512") == std::string::npos) {
    GTEST_SKIP() << "SKIPPED: only with AVX-512 oneDNN has row-invariant products";
  }
  const ModelConfig config = testing::TinyConfig(Architecture::kLlama);
  EXPECT_OK(CheckBackend(MatMulBackend::kOneDnn, DType::kF32, config));
  EXPECT_OK(CheckBackend(MatMulBackend::kOneDnn, DType::kBf16, config));
}

// The last bit of one output differs where more than 64 rows are computed at a time.
template <typename T>
void OtherBitsInCompany(Team& team, Matrix<const T> x, const PackedMatrix<T>& w, Matrix<float> y) {
  MatMul<T, float>(team, x, w, y);
  if (team.rank() == 0 && x.rows > 64) y.row(x.rows - 1)[w.n - 1] *= 1 + 0x1p-23f;
  team.Sync();
}

template <typename T>
void OtherBitsOnSeveralThreads(Team& team, Matrix<const T> x, const PackedMatrix<T>& w, Matrix<float> y) {
  MatMul<T, float>(team, x, w, y);
  if (team.rank() == 0 && team.size() > 1) y.row(0)[0] *= 1 + 0x1p-23f;
  team.Sync();
}

TEST(ProductCheck, AProductThatDependsOnTheNumberOfRowsIsCaught) {
  const absl::Status status = CheckRowInvariance<Bf16>(MatMulBackend::kOwn, kShapes, OtherBitsInCompany<Bf16>);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("[60, 48]"), HasSubstr("row 64 of 65")));
}

TEST(ProductCheck, AProductThatDependsOnThreadsIsCaught) {
  const absl::Status status = CheckRowInvariance<float>(MatMulBackend::kOwn, kShapes, OtherBitsOnSeveralThreads<float>);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("f32"), HasSubstr("row 0 of 1"), HasSubstr("3 threads")));
}

TEST(ProductCheck, ChoosesByWishTypeAndMachine) {
  const ModelConfig config = testing::TinyConfig(Architecture::kLlama);
  EXPECT_EQ(ChooseMatMulBackend(MatMulChoice::kOwn, DType::kBf16, config), MatMulBackend::kOwn);
  EXPECT_EQ(ChooseMatMulBackend(MatMulChoice::kAuto, DType::kF32, config), MatMulBackend::kOwn);
  const bool usable = CheckBackend(MatMulBackend::kOneDnn, DType::kBf16, config).ok();
  EXPECT_EQ(ChooseMatMulBackend(MatMulChoice::kOneDnn, DType::kBf16, config) == MatMulBackend::kOneDnn, usable);
  EXPECT_EQ(ChooseMatMulBackend(MatMulChoice::kAuto, DType::kBf16, config) == MatMulBackend::kOneDnn,
            usable && OneDnnIsFaster(DType::kBf16));
}

TEST(ProductCheck, TheKernelSignatureNamesTheBackend) {
  const std::string own = KernelSignature(MatMulBackend::kOwn), onednn = KernelSignature(MatMulBackend::kOneDnn);
  EXPECT_THAT(own, HasSubstr("own-"));
  EXPECT_EQ(onednn, own + " " + OneDnnSignature());
  EXPECT_THAT(onednn, HasSubstr("onednn-"));
}

}  // namespace
}  // namespace lockstep::model
