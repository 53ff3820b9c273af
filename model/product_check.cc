#include "model/product_check.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "model/packed_model.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

namespace lockstep::model {
namespace {

// Rows repeat after so many: few have to be multiplied alone, and each comes at many places of a batch.
constexpr int64_t kDistinctRows = 7;
constexpr int64_t kRows[] = {1, 2, 3, 8, 17, 64, 65, 200};
constexpr int kTeamSizes[] = {1, 3};
// Larger products (the transposed head) are tried with fewer numbers of rows, which keeps the check short.
constexpr int64_t kLargeProduct = int64_t{1} << 22;
constexpr int64_t kFewRows[] = {3, 65};

// Values in [-1, 1) that differ from index to index. Cheap: a head has many millions of weights.
float Value(uint64_t index) {
  index = (index + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  index = (index ^ (index >> 29)) * 0x94d049bb133111eb;
  return static_cast<float>(static_cast<int64_t>(index)) * 0x1p-63f;
}

void Round(float value, float* to) { *to = value; }
void Round(float value, Bf16* to) { *to = ToBf16(value); }

template <typename T>
absl::Status Try(MatMulBackend backend, const ProductShape& whole, ProductFunction<T> product) {
  const ProductShape shape{RepresentativeOutputs(whole.n, backend), whole.k};
  Buffer packed(static_cast<size_t>(PackedSize(shape.n, shape.k, backend)) * sizeof(T));
  std::vector<float> weights(shape.n * shape.k);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = Value(i);
  const WeightRows blocks[] = {{weights.data(), shape.n}};
  Team one = TeamOfOne();
  PackWeights<T>(one, blocks, shape.k, packed.as<T>(), backend);
  const PackedMatrix<T> w(packed.as<T>(), shape.n, shape.k, backend);

  const bool large = shape.n * shape.k > kLargeProduct;
  const absl::Span<const int64_t> counts = large ? absl::MakeConstSpan(kFewRows) : absl::MakeConstSpan(kRows);
  OwnedMatrix<T> x(counts.back(), shape.k);
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t i = 0; i < shape.k; ++i) {
      Round(Value((uint64_t{1} << 40) + static_cast<uint64_t>(r % kDistinctRows * shape.k + i)), x.view().row(r) + i);
    }
  }
  OwnedMatrix<float> alone(kDistinctRows, shape.n), y(counts.back(), shape.n);
  for (int64_t r = 0; r < std::min(kDistinctRows, x.rows()); ++r) {
    product(one, x.view().Rows(r, r + 1), w, alone.view().Rows(r, r + 1));
  }
  for (int threads : kTeamSizes) {
    ThreadPool pool(threads);
    for (int64_t rows : counts) {
      pool.Run([&](Team& team) { product(team, x.view().Rows(0, rows), w, y.view().Rows(0, rows)); });
      for (int64_t r = 0; r < rows; ++r) {
        const size_t bytes = static_cast<size_t>(shape.n) * sizeof(float);
        if (std::memcmp(y.view().row(r), alone.view().row(r % kDistinctRows), bytes) == 0) continue;
        return absl::FailedPreconditionError(absl::StrCat(
            "its ", DTypeName(DTypeOf<T>::value), " product with a [", whole.n, ", ", whole.k, "] matrix gives row ", r,
            " of ", rows, " other bits than the same row alone, on ", threads, threads == 1 ? " thread" : " threads"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<ProductShape> ProductShapes(const ModelConfig& config) {
  const Dimensions size(config);
  const ProductShape forward[] = {{size.qkv, size.hidden},
                                  {size.hidden, size.query},
                                  {2 * size.intermediate, size.hidden},
                                  {size.hidden, size.intermediate},
                                  {size.vocab, size.hidden}};
  std::vector<ProductShape> shapes;
  for (const ProductShape& shape : forward) {
    shapes.push_back(shape);
    shapes.push_back({shape.k, shape.n});
  }
  return shapes;
}

template <typename T>
absl::Status CheckRowInvariance(MatMulBackend backend, absl::Span<const ProductShape> shapes,
                                ProductFunction<T> product) {
  for (const ProductShape& shape : shapes) RETURN_IF_ERROR(Try<T>(backend, shape, product));
  return absl::OkStatus();
}

absl::Status CheckBackend(MatMulBackend backend, DType dtype, const ModelConfig& config) {
  if (backend == MatMulBackend::kOwn) return absl::OkStatus();
  const std::vector<ProductShape> shapes = ProductShapes(config);
  for (const ProductShape& shape : shapes) RETURN_IF_ERROR(CheckOneDnn(dtype, shape.n, shape.k));
  const auto product = [](Team& team, auto x, const auto& w, Matrix<float> y) { MatMul(team, x, w, y); };
  return dtype == DType::kF32 ? CheckRowInvariance<float>(backend, shapes, product)
                              : CheckRowInvariance<Bf16>(backend, shapes, product);
}

MatMulBackend ChooseMatMulBackend(MatMulChoice choice, DType dtype, const ModelConfig& config) {
  if (choice == MatMulChoice::kOwn) return MatMulBackend::kOwn;
  if (choice == MatMulChoice::kAuto && !OneDnnIsFaster(dtype)) return MatMulBackend::kOwn;
  const absl::Status status = CheckBackend(MatMulBackend::kOneDnn, dtype, config);
  if (status.ok()) return MatMulBackend::kOneDnn;
  LogWarning(absl::StrCat("computing with the project's own matrix products instead of oneDNN's: ", Message(status)));
  return MatMulBackend::kOwn;
}

template absl::Status CheckRowInvariance<float>(MatMulBackend, absl::Span<const ProductShape>, ProductFunction<float>);
template absl::Status CheckRowInvariance<Bf16>(MatMulBackend, absl::Span<const ProductShape>, ProductFunction<Bf16>);

}  // namespace lockstep::model
