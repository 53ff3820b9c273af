#include "model/kernels/embedding.h"

#include <cstring>
#include <type_traits>

#include "model/kernels/cpu/matmul_kernels.h"
#include "model/kernels/elementwise.h"
#include "runtime/base/check.h"

namespace lockstep::model {

template <typename T>
void EmbeddingForward(Matrix<const T> table, absl::Span<const int32_t> ids, Matrix<float> x) {
  CHECK_EQ(x.rows, static_cast<int64_t>(ids.size()));
  CHECK_EQ(x.cols, table.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    const int64_t id = ids[r];
    CHECK(id >= 0 && id < table.rows);
    if constexpr (std::is_same_v<T, float>) {
      std::memcpy(x.row(r), table.row(id), static_cast<size_t>(x.cols) * sizeof(float));
    } else {
      internal::ConvertToFloat(table.row(id), x.cols, x.row(r));
    }
  }
}
template void EmbeddingForward<float>(Matrix<const float>, absl::Span<const int32_t>, Matrix<float>);
template void EmbeddingForward<Bf16>(Matrix<const Bf16>, absl::Span<const int32_t>, Matrix<float>);

void EmbeddingBackward(absl::Span<const int32_t> ids, Matrix<const float> dx, Matrix<float> d_table) {
  CHECK_EQ(dx.rows, static_cast<int64_t>(ids.size()));
  CHECK_EQ(dx.cols, d_table.cols);
  for (int64_t r = 0; r < dx.rows; ++r) {
    const int64_t id = ids[r];
    CHECK(id >= 0 && id < d_table.rows);
    AddRows(d_table.Rows(id, id + 1), dx.Rows(r, r + 1), d_table.Rows(id, id + 1));
  }
}

}  // namespace lockstep::model
