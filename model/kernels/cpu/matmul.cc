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
using internal::kTileRows;
using internal::NextBlock;
using internal::PanelProduct;
using internal::SpreadOverTiles;

// Blocks that keep the working set in the caches: a panel block of 96 x 48 floats (18 KB) in L1, the float32 inputs
// (128 rows x 1536) and the tiles beside it in L2. Chains continue across blocks through float32 memory, so the sizes
// do not touch the bits.
constexpr int64_t kDepthBlock = 96;
constexpr int64_t kInputBlock = 16 * kDepthBlock;
constexpr int64_t kRowBlock = 128;
constexpr int64_t kGradientDepth = 128;

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

// What one call multiplies: panels [panel_begin, panel_end), inputs [k_begin, k_end).
struct ProductRange {
  int64_t panel_begin, panel_end, k_begin, k_end;
};

// The block of weights that follows inputs [.., k) of panel p.
template <typename T>
NextBlock BlockAfter(const PackedMatrix<T>& w, const ProductRange& range, int64_t p, int64_t k) {
  if (k >= range.k_end) {
    if (p + 1 == range.panel_end) return {};
    ++p;
    k = range.k_begin;
  }
  const int64_t count = std::min(kDepthBlock, range.k_end - k) * kPanel;
  return {w.data + p * w.panel_stride + k * kPanel, count * static_cast<int64_t>(sizeof(T))};
}

// One panel: tile (+)= x * w over the range's inputs. x's column 0 is input k_begin.
template <typename T>
void PanelBlocks(FloatRows x, int64_t rows, const PackedMatrix<T>& w, const ProductRange& range, int64_t p,
                 float* tile) {
  const T* panel = w.data + p * w.panel_stride;
  for (int64_t k = range.k_begin; k < range.k_end; k += kDepthBlock) {
    const int64_t depth = std::min(kDepthBlock, range.k_end - k);
    const float* weights = PanelBlock(panel + k * kPanel, depth, ThreadScratch().panel);
    PanelProduct(rows, depth, {x.data + (k - range.k_begin), kTileRows * x.stride, x.stride, 1}, weights, tile, k > 0,
                 BlockAfter(w, range, p, k + depth));
  }
}

// The product of at most kRowBlock rows; y's column 0 is output panel_begin * kPanel, its last one n_end - 1.
template <typename T, typename Out>
void ProductBlock(Matrix<const T> x, const PackedMatrix<T>& w, int64_t panel_begin, int64_t panel_end, int64_t n_end,
                  Matrix<Out> y, Store store) {
  // Tiles of all panels stay where the inputs come in several blocks, else one serves all.
  const int64_t tile_stride = w.k > kInputBlock ? x.rows * kPanel : 0;
  float* tiles = Scratch::Get<float>(ThreadScratch().tile, x.rows * kPanel + (panel_end - panel_begin) * tile_stride);
  for (int64_t k = 0; k < w.k; k += kInputBlock) {
    const ProductRange range{panel_begin, panel_end, k, std::min(w.k, k + kInputBlock)};
    const FloatRows floats = AsFloat(x.Cols(k, range.k_end), ThreadScratch().x);
    for (int64_t p = panel_begin; p < panel_end; ++p) {
      float* tile = tiles + (p - panel_begin) * tile_stride;
      PanelBlocks(floats, x.rows, w, range, p, tile);
      if (range.k_end < w.k) continue;
      const int64_t count = std::min(kPanel, n_end - p * kPanel);
      for (int64_t r = 0; r < x.rows; ++r) {
        StoreRow(tile + r * kPanel, count, store, y.row(r) + (p - panel_begin) * kPanel);
      }
    }
  }
}

template <typename T, typename Out>
void ProductPanels(Matrix<const T> x, const PackedMatrix<T>& w, int64_t panel_begin, int64_t panel_end, int64_t n_end,
                   Matrix<Out> y, Store store) {
  CHECK_EQ(x.cols, w.k);
  CHECK_EQ(x.rows, y.rows);
  for (int64_t r = 0; r < x.rows; r += kRowBlock) {
    const int64_t end = std::min(x.rows, r + kRowBlock);
    ProductBlock(x.Rows(r, end), w, panel_begin, panel_end, n_end, y.Rows(r, end), store);
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

void LoadElements(const float* from, int64_t count, float* to) { StoreElements(from, count, to); }
void LoadElements(const Bf16* from, int64_t count, float* to) { ConvertToFloat(from, count, to); }

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

// Columns of panel p of the inputs as float32, filled up with zeros.   // [x.rows][kPanel]
template <typename T>
const float* GradientPanel(Matrix<const T> x, int64_t p) {
  float* panel = Scratch::Get<float>(ThreadScratch().panel, kGradientDepth * kPanel);
  const int64_t count = std::min(kPanel, x.cols - p * kPanel);
  for (int64_t i = 0; i < x.rows; ++i) {
    LoadElements(x.row(i) + p * kPanel, count, panel + i * kPanel);
    std::fill(panel + i * kPanel + count, panel + (i + 1) * kPanel, 0.0f);
  }
  return panel;
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
  const int64_t rows = dw.rows, panels = NumPanels(x.cols), tiles = (rows + kTileRows - 1) / kTileRows;
  constexpr int64_t kTileStride = kGradientDepth * kTileRows;
  float* a = Scratch::Get<float>(scratch.x, tiles * kTileStride);        // [tiles][depth][kTileRows]
  float* c = Scratch::Get<float>(scratch.tile, panels * rows * kPanel);  // [panels][rows][kPanel]
  for (int64_t t = 0; t < x.rows; t += kGradientDepth) {
    const int64_t depth = std::min(kGradientDepth, x.rows - t);
    for (int64_t i = 0; i < depth; ++i) {
      SpreadOverTiles(dy.row(t + i) + row_begin, rows, a + i * kTileRows, kTileStride);
    }
    for (int64_t p = 0; p < panels; ++p) {
      const float* b = GradientPanel(x.Rows(t, t + depth), p);
      PanelProduct(rows, depth, {a, kTileStride, 1, kTileRows}, b, c + p * rows * kPanel, t > 0);
    }
  }
  if (x.rows == 0) std::fill(c, c + panels * rows * kPanel, 0.0f);
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t count = std::min(kPanel, x.cols - p * kPanel);
    for (int64_t r = 0; r < rows; ++r) {
      StoreElements(c + (p * rows + r) * kPanel, count, dw.row(r) + p * kPanel);
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
