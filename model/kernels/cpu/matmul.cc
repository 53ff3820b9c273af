#include "model/kernels/matmul.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "model/kernels/cpu/matmul_kernels.h"
#include "model/kernels/cpu/onednn_matmul.h"
#include "runtime/base/check.h"

namespace lockstep::model {
namespace {

using internal::ConvertToBf16;
using internal::ConvertToFloat;
using internal::PanelProduct;

// Blocks that keep the working set in the caches: a panel block of 128 x 48 floats (24 KB) in L1, as many outputs (128
// rows x 48) beside it in L2. Chains continue across blocks through float32 memory, so the sizes do not touch the bits.
constexpr int64_t kDepthBlock = 128;
constexpr int64_t kRowBlock = 128;
constexpr int64_t kGradientDepth = 256;

int64_t NumPanels(int64_t n) { return (n + kPanel - 1) / kPanel; }

// Scratch of one thread; grows to the largest product seen and stays.
struct Scratch {
  Buffer x, panel, tile;
  template <typename T>
  static T* Get(Buffer& buffer, int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (buffer.size() < bytes) buffer = Buffer(bytes);
    return buffer.as<T>();
  }
};
Scratch& ThreadScratch() {
  static thread_local Scratch scratch;
  return scratch;
}

// x as float32 with its row stride: itself, or a converted copy.
struct FloatRows {
  const float* data;
  int64_t stride;
};
FloatRows AsFloat(Matrix<const float> x, Buffer&) { return {x.data, x.stride}; }
FloatRows AsFloat(Matrix<const Bf16> x, Buffer& buffer) {
  float* copy = Scratch::Get<float>(buffer, x.rows * x.cols);
  for (int64_t r = 0; r < x.rows; ++r) ConvertToFloat(x.row(r), x.cols, copy + r * x.cols);
  return {copy, x.cols};
}

// Weights come from memory once a product: asking for the next block while this one is multiplied hides the way.
template <typename T>
void PrefetchBlock(const T* block, int64_t depth) {
  const char* bytes = reinterpret_cast<const char*>(block);
  const int64_t size = depth * kPanel * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < size; i += 64) __builtin_prefetch(bytes + i, 0, 2);
}

const float* PanelBlock(const float* panel, int64_t, Buffer&) { return panel; }
const float* PanelBlock(const Bf16* panel, int64_t depth, Buffer& buffer) {
  float* copy = Scratch::Get<float>(buffer, kDepthBlock * kPanel);
  ConvertToFloat(panel, depth * kPanel, copy);
  return copy;
}

void StoreRow(const float* from, int64_t count, Store store, float* to) {
  if (store == Store::kSet) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else {
    for (int64_t j = 0; j < count; ++j) to[j] += from[j];
  }
}
void StoreRow(const float* from, int64_t count, Store, Bf16* to) { ConvertToBf16(from, count, to); }

// Panels [panel_begin, panel_end) of the product of at most kRowBlock rows; y's column 0 is output panel_begin *
// kPanel.
template <typename T, typename Out>
void ProductBlock(FloatRows x, int64_t rows, const PackedMatrix<T>& w, int64_t panel_begin, int64_t panel_end,
                  int64_t n_end, Matrix<Out> y, Store store) {
  Scratch& scratch = ThreadScratch();
  float* tile = Scratch::Get<float>(scratch.tile, kRowBlock * kPanel);
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const T* panel = w.data + p * w.panel_stride;
    for (int64_t k = 0; k < w.k; k += kDepthBlock) {
      const int64_t depth = std::min(kDepthBlock, w.k - k);
      const int64_t next = k + depth;
      if (next < w.k) {
        PrefetchBlock(panel + next * kPanel, std::min(kDepthBlock, w.k - next));
      } else if (p + 1 < panel_end) {
        PrefetchBlock(panel + w.panel_stride, std::min(kDepthBlock, w.k));
      }
      PanelProduct(rows, depth, x.data + k, x.stride, 1, PanelBlock(panel + k * kPanel, depth, scratch.panel), tile,
                   k > 0);
    }
    const int64_t column = (p - panel_begin) * kPanel;
    const int64_t count = std::min(kPanel, n_end - p * kPanel);
    for (int64_t r = 0; r < rows; ++r) StoreRow(tile + r * kPanel, count, store, y.row(r) + column);
  }
}

template <typename T, typename Out>
void ProductPanels(Matrix<const T> x, const PackedMatrix<T>& w, int64_t panel_begin, int64_t panel_end, int64_t n_end,
                   Matrix<Out> y, Store store) {
  CHECK_EQ(x.cols, w.k);
  CHECK_EQ(x.rows, y.rows);
  for (int64_t r = 0; r < x.rows; r += kRowBlock) {
    const int64_t end = std::min(x.rows, r + kRowBlock);
    const FloatRows block = AsFloat(x.Rows(r, end), ThreadScratch().x);
    ProductBlock(block, end - r, w, panel_begin, panel_end, n_end, y.Rows(r, end), store);
  }
}

// Finds the weight row `n` of the stacked blocks.
const float* StackedRow(absl::Span<const WeightRows> blocks, int64_t n, int64_t k) {
  for (const WeightRows& block : blocks) {
    if (n < block.rows) return block.data + n * k;
    n -= block.rows;
  }
  return nullptr;
}

int64_t TotalRows(absl::Span<const WeightRows> blocks) {
  int64_t rows = 0;
  for (const WeightRows& block : blocks) rows += block.rows;
  return rows;
}

void StoreElements(const float* from, int64_t count, float* to) {
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}
void StoreElements(const float* from, int64_t count, Bf16* to) { ConvertToBf16(from, count, to); }

template <typename T>
void PackPanel(absl::Span<const WeightRows> blocks, int64_t n, int64_t k, int64_t p, T* panel) {
  constexpr int64_t kColumns = 16;  // columns transposed at a time: one cache line of each weight row
  const float* rows[kPanel];
  for (int64_t j = 0; j < kPanel; ++j) rows[j] = p * kPanel + j < n ? StackedRow(blocks, p * kPanel + j, k) : nullptr;
  alignas(64) float block[kColumns * kPanel];
  for (int64_t c = 0; c < k; c += kColumns) {
    const int64_t count = std::min(kColumns, k - c);
    for (int64_t j = 0; j < kPanel; ++j) {
      for (int64_t i = 0; i < count; ++i) block[i * kPanel + j] = rows[j] != nullptr ? rows[j][c + i] : 0.0f;
    }
    StoreElements(block, count * kPanel, panel + c * kPanel);
  }
}

}  // namespace

int64_t PackedSize(int64_t n, int64_t k, MatMulBackend backend) {
  return backend == MatMulBackend::kOneDnn ? internal::OneDnnPackedSize(n, k) : NumPanels(n) * kPanel * k;
}

int64_t RepresentativeOutputs(int64_t n, MatMulBackend backend) {
  return backend == MatMulBackend::kOneDnn ? internal::OneDnnRepresentativeOutputs(n) : std::min(n, kPanel);
}

template <typename T>
void PackWeights(Team& team, absl::Span<const WeightRows> blocks, int64_t k, T* packed, MatMulBackend backend) {
  if (backend == MatMulBackend::kOneDnn) return internal::OneDnnPackWeights(team, blocks, k, packed);
  const int64_t n = TotalRows(blocks);
  for (int64_t p = team.rank(); p < NumPanels(n); p += team.size()) PackPanel(blocks, n, k, p, packed + p * k * kPanel);
  team.Sync();
}

template <typename T>
void PackTransposed(Team& team, absl::Span<const WeightRows> blocks, int64_t k, T* packed, MatMulBackend backend) {
  if (backend == MatMulBackend::kOneDnn) return internal::OneDnnPackTransposed(team, blocks, k, packed);
  const int64_t depth = TotalRows(blocks);
  alignas(64) float padded[kPanel];
  for (int64_t p = team.rank(); p < NumPanels(k); p += team.size()) {
    const int64_t count = std::min(kPanel, k - p * kPanel);
    T* to = packed + p * depth * kPanel;
    for (const WeightRows& block : blocks) {
      for (int64_t r = 0; r < block.rows; ++r, to += kPanel) {
        const float* from = block.data + r * k + p * kPanel;
        if (count < kPanel) {
          std::fill(padded, padded + kPanel, 0.0f);
          std::copy(from, from + count, padded);
          from = padded;
        }
        StoreElements(from, kPanel, to);
      }
    }
  }
  team.Sync();
}

template <typename T, typename Out>
void MatMul(Team& team, Matrix<const T> x, const PackedMatrix<T>& w, Matrix<Out> y, Store store) {
  CHECK_EQ(y.cols, w.n);
  if (w.backend == MatMulBackend::kOneDnn) return internal::OneDnnMatMul(team, x, w, y, store);
  const int64_t panels = NumPanels(w.n);
  const int64_t begin = panels * team.rank() / team.size();
  const int64_t end = panels * (team.rank() + 1) / team.size();
  if (begin < end && x.rows > 0) {
    const int64_t n_begin = begin * kPanel;
    ProductPanels(x, w, begin, end, w.n, y.Cols(n_begin, w.n), store);
  }
  team.Sync();
}

template <typename T>
void WeightGradient(Matrix<const T> dy, int64_t row_begin, Matrix<const T> x, Matrix<float> dw, MatMulBackend backend) {
  CHECK_EQ(dy.rows, x.rows);
  CHECK_EQ(dw.cols, x.cols);
  CHECK_LE(row_begin + dw.rows, dy.cols);
  if (backend == MatMulBackend::kOneDnn) return internal::OneDnnWeightGradient(dy, row_begin, x, dw);
  Scratch& scratch = ThreadScratch();
  const int64_t rows = dw.rows;
  const int64_t panels = NumPanels(x.cols);
  float* a = Scratch::Get<float>(scratch.x, kGradientDepth * rows);        // [depth][rows]
  float* b = Scratch::Get<float>(scratch.panel, kGradientDepth * kPanel);  // [depth][kPanel]
  float* c = Scratch::Get<float>(scratch.tile, panels * rows * kPanel);    // [panels][rows][kPanel]
  for (int64_t t = 0; t < x.rows; t += kGradientDepth) {
    const int64_t depth = std::min(kGradientDepth, x.rows - t);
    for (int64_t i = 0; i < depth; ++i) {
      const T* from = dy.row(t + i) + row_begin;
      if constexpr (std::is_same_v<T, float>) {
        StoreElements(from, rows, a + i * rows);
      } else {
        ConvertToFloat(from, rows, a + i * rows);
      }
    }
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t count = std::min(kPanel, x.cols - p * kPanel);
      for (int64_t i = 0; i < depth; ++i) {
        const T* from = x.row(t + i) + p * kPanel;
        if constexpr (std::is_same_v<T, float>) {
          StoreElements(from, count, b + i * kPanel);
        } else {
          ConvertToFloat(from, count, b + i * kPanel);
        }
        std::fill(b + i * kPanel + count, b + (i + 1) * kPanel, 0.0f);
      }
      PanelProduct(rows, depth, a, 1, rows, b, c + p * rows * kPanel, t > 0);
    }
  }
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t count = std::min(kPanel, x.cols - p * kPanel);
    for (int64_t r = 0; r < rows; ++r) {
      if (x.rows == 0) {
        std::fill(dw.row(r) + p * kPanel, dw.row(r) + p * kPanel + count, 0.0f);
      } else {
        StoreElements(c + (p * rows + r) * kPanel, count, dw.row(r) + p * kPanel);
      }
    }
  }
}

#define LOCKSTEP_INSTANTIATE(T)                                                                         \
  template void PackWeights<T>(Team&, absl::Span<const WeightRows>, int64_t, T*, MatMulBackend);        \
  template void PackTransposed<T>(Team&, absl::Span<const WeightRows>, int64_t, T*, MatMulBackend);     \
  template void MatMul<T, float>(Team&, Matrix<const T>, const PackedMatrix<T>&, Matrix<float>, Store); \
  template void WeightGradient<T>(Matrix<const T>, int64_t, Matrix<const T>, Matrix<float>, MatMulBackend);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)
#undef LOCKSTEP_INSTANTIATE
template void MatMul<Bf16, Bf16>(Team&, Matrix<const Bf16>, const PackedMatrix<Bf16>&, Matrix<Bf16>, Store);

}  // namespace lockstep::model
