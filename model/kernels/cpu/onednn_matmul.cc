#include "model/kernels/cpu/onednn_matmul.h"

#include <omp.h>
#include <dnnl.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/kernels/cpu/matmul_kernels.h"
#include "model/kernels/matmul_backend.h"
#include "runtime/base/check.h"

namespace lockstep::model {
namespace {

using internal::ConvertToBf16;
using Dims = dnnl::memory::dims;
using Plain = dnnl::memory::format_tag;

constexpr int64_t kRowUnit = 8;    // rows are padded to a multiple of it
constexpr int64_t kRowBlock = 64;  // rows of one call of a primitive at most: outputs stay in the first-level cache
constexpr int64_t kInputUnit = 64;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename T>
constexpr dnnl::memory::data_type kType = dnnl::memory::data_type::f32;
template <>
constexpr dnnl::memory::data_type kType<Bf16> = dnnl::memory::data_type::bf16;

dnnl::memory::data_type TypeOf(DType dtype) { return dtype == DType::kBf16 ? kType<Bf16> : kType<float>; }

// Outputs of a piece: multiples of oneDNN's block of 64, so nothing is padded; the wider the fewer calls, but enough
// pieces for several threads. A function of n alone.
constexpr int64_t kMinPieces = 8;
int64_t PieceWidth(int64_t n) {
  for (int64_t width : {192, 128}) {
    if (n % width == 0 && n >= kMinPieces * width) return width;
  }
  return 64;
}

struct PieceShape {
  int64_t width, inputs, count;
  PieceShape(int64_t n, int64_t k)
      : width(PieceWidth(n)), inputs(CeilDiv(k, kInputUnit) * kInputUnit), count(CeilDiv(n, width)) {}
  int64_t size() const { return width * inputs; }
};

// The engine, and a stream of each thread. oneDNN's own threads never work: its pool is told so once a thread.
dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}
dnnl::stream& Stream() {
  static thread_local dnnl::stream stream = [] {
    omp_set_num_threads(1);
    return dnnl::stream(Engine());
  }();
  return stream;
}

// The product of `rows` rows with a piece; oneDNN chooses the layout of the weights unless one is given.
dnnl::matmul::primitive_desc Describe(dnnl::memory::data_type type, int64_t rows, int64_t width, int64_t inputs,
                                      const dnnl::memory::desc* weights) {
  Stream();
  const dnnl::memory::desc x(Dims{rows, inputs}, type, Plain::ab);
  const dnnl::memory::desc w =
      weights != nullptr ? *weights : dnnl::memory::desc(Dims{inputs, width}, type, Plain::any);
  const dnnl::memory::desc y(Dims{rows, width}, dnnl::memory::data_type::f32, Plain::ab);
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(x, w, y), Engine());
}

dnnl::memory::desc PackedDesc(dnnl::memory::data_type type, int64_t width, int64_t inputs) {
  return Describe(type, kRowBlock, width, inputs, nullptr).weights_desc();
}

// Offset that index `i` of dimension `dim` adds in a blocked layout; an element lies at the sum over its dimensions.
int64_t OffsetIn(const dnnl_blocking_desc_t& blocking, int dim, int64_t i) {
  int64_t offset = 0, stride = 1;
  for (int block = blocking.inner_nblks - 1; block >= 0; --block) {
    const int64_t size = blocking.inner_blks[block];
    if (blocking.inner_idxs[block] == dim) {
      offset += i % size * stride;
      i /= size;
    }
    stride *= size;
  }
  return offset + i * blocking.strides[dim];
}

// Element (input i, output j) of a packed piece lies at inputs[i] + outputs[j].
struct PieceOffsets {
  std::vector<int64_t> inputs, outputs;
  PieceOffsets(dnnl::memory::data_type type, const PieceShape& shape) : inputs(shape.inputs), outputs(shape.width) {
    const dnnl::memory::desc desc = PackedDesc(type, shape.width, shape.inputs);
    const dnnl_blocking_desc_t& blocking = desc.data.format_desc.blocking;
    for (int64_t i = 0; i < shape.inputs; ++i) inputs[i] = OffsetIn(blocking, 0, i);
    for (int64_t j = 0; j < shape.width; ++j) outputs[j] = OffsetIn(blocking, 1, j);
  }
};

// A primitive with its arguments, of one thread: oneDNN's scratch memory belongs to the thread that made it. Compiled
// code is shared by all threads through oneDNN's own cache.
class Product {
 public:
  Product(dnnl::memory::data_type type, int64_t rows, int64_t width, int64_t inputs) {
    const dnnl::memory::desc packed = PackedDesc(type, width, inputs);
    const dnnl::matmul::primitive_desc described = Describe(type, rows, width, inputs, &packed);
    primitive_ = dnnl::matmul(described);
    x_ = dnnl::memory(described.src_desc(), Engine(), nullptr);
    w_ = dnnl::memory(packed, Engine(), nullptr);
    y_ = dnnl::memory(described.dst_desc(), Engine(), nullptr);
  }
  // oneDNN only reads x and w.
  void Run(const void* x, const void* w, float* y) {
    x_.set_data_handle(const_cast<void*>(x));
    w_.set_data_handle(const_cast<void*>(w));
    y_.set_data_handle(y);
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, x_.get()}, {DNNL_ARG_WEIGHTS, w_.get()}, {DNNL_ARG_DST, y_.get()}};
    CHECK_EQ(dnnl_primitive_execute(primitive_.get(), Stream().get(), 3, arguments), dnnl_success);
  }

 private:
  dnnl::matmul primitive_;
  dnnl::memory x_, w_, y_;
};

// The thread's products, made when first needed.
template <typename T>
Product& ThreadProduct(int64_t rows, int64_t width, int64_t inputs) {
  static thread_local std::map<std::tuple<int64_t, int64_t, int64_t>, std::unique_ptr<Product>> products;
  std::unique_ptr<Product>& product = products[{inputs, width, rows}];
  if (product == nullptr) product = std::make_unique<Product>(kType<T>, rows, width, inputs);
  return *product;
}

template <typename T>
T* GrowTo(Buffer& buffer, int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  if (buffer.size() < bytes) buffer = Buffer(bytes);
  return buffer.as<T>();
}

// Rows in the form a primitive reads, unit by unit: those of x where they lie one after the other, a padded copy for
// the rest.
template <typename T>
class InputRows {
 public:
  InputRows(Matrix<const T> x, int64_t inputs) : x_(x), inputs_(inputs) {
    static thread_local Buffer buffer;
    if (x.cols == inputs && (x.stride == inputs || x.rows <= 1)) direct_ = x.rows / kRowUnit;
    const int64_t begin = direct_ * kRowUnit, rows = CeilDiv(x.rows, kRowUnit) * kRowUnit - begin;
    T* copy = GrowTo<T>(buffer, rows * inputs);
    copy_ = copy;
    for (int64_t r = 0; r < rows; ++r, copy += inputs) {
      const int64_t count = begin + r < x.rows ? x.cols : 0;
      if (count > 0) std::copy_n(x.row(begin + r), count, copy);
      std::fill(copy + count, copy + inputs, T());
    }
  }
  // Units [begin, end) lie in memory as far as this.
  int64_t RunEnd(int64_t begin, int64_t end) const { return begin < direct_ ? std::min(end, direct_) : end; }
  const T* unit(int64_t u) const {
    return u < direct_ ? x_.row(u * kRowUnit) : copy_ + (u - direct_) * kRowUnit * inputs_;
  }

 private:
  const Matrix<const T> x_;
  const int64_t inputs_;
  int64_t direct_ = 0;  // units read from x itself
  const T* copy_ = nullptr;
};

void StoreRow(const float* from, int64_t count, Store store, float* to) {
  if (store == Store::kSet) {
    std::copy_n(from, count, to);
  } else {
    for (int64_t j = 0; j < count; ++j) to[j] += from[j];
  }
}
void StoreRow(const float* from, int64_t count, Store, Bf16* to) { ConvertToBf16(from, count, to); }

void StoreElement(float value, float* to) { *to = value; }
void StoreElement(float value, Bf16* to) { *to = ToBf16(value); }

int64_t TotalRows(absl::Span<const WeightRows> blocks) {
  int64_t rows = 0;
  for (const WeightRows& block : blocks) rows += block.rows;
  return rows;
}

absl::Status Unusable(DType dtype, int64_t n, int64_t k, const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("oneDNN's ", DTypeName(dtype), " product of [", n, ", ", k, "] cannot be used: ", why));
}

}  // namespace

const char* MatMulBackendName(MatMulBackend backend) { return backend == MatMulBackend::kOwn ? "own" : "onednn"; }

absl::Status CheckOneDnn(DType dtype, int64_t n, int64_t k) {
  if (dtype != DType::kF32 && dtype != DType::kBf16) return Unusable(dtype, n, k, "only f32 and bf16 are");
  const PieceShape shape(n, k);
  try {
    const dnnl::memory::desc packed = PackedDesc(TypeOf(dtype), shape.width, shape.inputs);
    for (int64_t rows : {1, 8, 200, 1024}) {
      if (Describe(TypeOf(dtype), rows, shape.width, shape.inputs, nullptr).weights_desc() != packed) {
        return Unusable(dtype, n, k, absl::StrCat("it wants another layout of the weights for ", rows, " rows"));
      }
    }
    if (packed.data.format_kind != dnnl_blocked || packed.data.extra.flags != 0 ||
        packed.get_size() != static_cast<size_t>(shape.size() * SizeOf(dtype))) {
      return Unusable(dtype, n, k, "its layout of the weights is not a plain blocked one");
    }
  } catch (const dnnl::error& error) {
    return Unusable(dtype, n, k, error.what());
  }
  return absl::OkStatus();
}

bool OneDnnIsFaster(DType dtype) {
  if (dtype != DType::kBf16) return false;
  const int isa = static_cast<int>(dnnl::get_effective_cpu_isa());
  const auto has = [isa](int wanted) { return (isa & wanted) == wanted; };
  return has(dnnl_cpu_isa_avx512_core_amx) || (has(dnnl_cpu_isa_avx512_core_bf16) && __builtin_cpu_is("amd") != 0);
}

std::string OneDnnSignature() {
  const dnnl_version_t* version = dnnl_version();
  const int isa = static_cast<int>(dnnl::get_effective_cpu_isa());
  std::string name = absl::StrCat("isa-", absl::Hex(isa));
  for (const auto& [value, text] : {std::pair{dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
                                    {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
                                    {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
                                    {dnnl_cpu_isa_avx512_core, "avx512_core"},
                                    {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
                                    {dnnl_cpu_isa_avx2, "avx2"}}) {
    if (isa == static_cast<int>(value)) name = text;
  }
  return absl::StrCat("onednn-", version->major, ".", version->minor, ".", version->patch, "/", name);
}

namespace internal {

int64_t OneDnnPackedSize(int64_t n, int64_t k) {
  const PieceShape shape(n, k);
  return shape.count * shape.size();
}

int64_t OneDnnRepresentativeOutputs(int64_t n) {
  const int64_t outputs = std::min(n, kMinPieces * PieceWidth(n));
  CHECK_EQ(PieceWidth(outputs), PieceWidth(n));
  return outputs;
}

template <typename T>
void OneDnnPackWeights(Team& team, absl::Span<const WeightRows> blocks, int64_t k, T* packed) {
  constexpr int64_t kInputBlock = 512;  // a line of the packed form takes 16 outputs: keep the open lines in the cache
  const int64_t n = TotalRows(blocks);
  const PieceShape shape(n, k);
  const PieceOffsets at(kType<T>, shape);
  std::vector<const float*> rows;
  for (const WeightRows& block : blocks) {
    for (int64_t r = 0; r < block.rows; ++r) rows.push_back(block.data + r * k);
  }
  for (int64_t p = team.rank(); p < shape.count; p += team.size()) {
    T* to = packed + p * shape.size();
    const int64_t count = std::min(shape.width, n - p * shape.width);
    if (count < shape.width || k < shape.inputs) std::fill_n(to, shape.size(), T());
    for (int64_t begin = 0; begin < k; begin += kInputBlock) {
      const int64_t end = std::min(k, begin + kInputBlock);
      for (int64_t j = 0; j < count; ++j) {
        const float* from = rows[p * shape.width + j];
        T* column = to + at.outputs[j];
        for (int64_t i = begin; i < end; ++i) StoreElement(from[i], column + at.inputs[i]);
      }
    }
  }
  team.Sync();
}

template <typename T>
void OneDnnPackTransposed(Team& team, absl::Span<const WeightRows> blocks, int64_t k, T* packed) {
  const PieceShape shape(k, TotalRows(blocks));
  const PieceOffsets at(kType<T>, shape);
  for (int64_t p = team.rank(); p < shape.count; p += team.size()) {
    T* to = packed + p * shape.size();
    const int64_t count = std::min(shape.width, k - p * shape.width);
    if (count < shape.width || TotalRows(blocks) < shape.inputs) std::fill_n(to, shape.size(), T());
    int64_t input = 0;
    for (const WeightRows& block : blocks) {
      for (int64_t r = 0; r < block.rows; ++r, ++input) {
        const float* from = block.data + r * k + p * shape.width;
        T* row = to + at.inputs[input];
        for (int64_t j = 0; j < count; ++j) StoreElement(from[j], row + at.outputs[j]);
      }
    }
  }
  team.Sync();
}

template <typename T, typename Out>
void OneDnnMatMul(Team& team, Matrix<const T> x, const PackedMatrix<T>& w, Matrix<Out> y, Store store) {
  CHECK_EQ(x.cols, w.k);
  CHECK_EQ(x.rows, y.rows);
  const PieceShape shape(w.n, w.k);
  // Each thread takes a run of (piece, unit of rows) pairs, piece by piece, so all get equally much.
  const int64_t units = CeilDiv(x.rows, kRowUnit), total = units * shape.count;
  int64_t next = total * team.rank() / team.size();
  const int64_t end = total * (team.rank() + 1) / team.size();
  if (next < end) {
    static thread_local Buffer buffer;
    float* tile = GrowTo<float>(buffer, kRowBlock * shape.width);
    const InputRows<T> input(x, shape.inputs);
    while (next < end) {
      const int64_t piece = next / units, unit = next % units;
      const int64_t unit_end = input.RunEnd(unit, std::min({units, unit + kRowBlock / kRowUnit, unit + end - next}));
      ThreadProduct<T>((unit_end - unit) * kRowUnit, shape.width, shape.inputs)
          .Run(input.unit(unit), w.data + piece * shape.size(), tile);
      const int64_t column = piece * shape.width, count = std::min(shape.width, w.n - column);
      const int64_t first_row = unit * kRowUnit, last_row = std::min(x.rows, unit_end * kRowUnit);
      for (int64_t r = first_row; r < last_row; ++r) {
        StoreRow(tile + (r - first_row) * shape.width, count, store, y.row(r) + column);
      }
      next += unit_end - unit;
    }
  }
  team.Sync();
}

// Shapes differ from one micro-batch to the next, so the primitive is made anew: microseconds beside milliseconds.
template <typename T>
void OneDnnWeightGradient(Matrix<const T> dy, int64_t row_begin, Matrix<const T> x, Matrix<float> dw) {
  if (x.rows == 0) {
    for (int64_t r = 0; r < dw.rows; ++r) std::fill_n(dw.row(r), dw.cols, 0.0f);
    return;
  }
  dnnl::stream& stream = Stream();
  const dnnl::memory::desc dy_desc(Dims{dw.rows, x.rows}, kType<T>, Dims{1, dy.stride});
  const dnnl::memory::desc x_desc(Dims{x.rows, x.cols}, kType<T>, Dims{x.stride, 1});
  const dnnl::memory::desc dw_desc(Dims{dw.rows, dw.cols}, kType<float>, Dims{dw.stride, 1});
  const dnnl::matmul product(dnnl::matmul::primitive_desc(dnnl::matmul::desc(dy_desc, x_desc, dw_desc), Engine()));
  const dnnl::memory dy_memory(dy_desc, Engine(), const_cast<T*>(dy.data + row_begin));  // only read
  const dnnl::memory x_memory(x_desc, Engine(), const_cast<T*>(x.data));
  const dnnl::memory dw_memory(dw_desc, Engine(), dw.data);
  product.execute(stream, {{DNNL_ARG_SRC, dy_memory}, {DNNL_ARG_WEIGHTS, x_memory}, {DNNL_ARG_DST, dw_memory}});
}

#define LOCKSTEP_INSTANTIATE(T)                                                                               \
  template void OneDnnPackWeights<T>(Team&, absl::Span<const WeightRows>, int64_t, T*);                       \
  template void OneDnnPackTransposed<T>(Team&, absl::Span<const WeightRows>, int64_t, T*);                    \
  template void OneDnnMatMul<T, float>(Team&, Matrix<const T>, const PackedMatrix<T>&, Matrix<float>, Store); \
  template void OneDnnWeightGradient<T>(Matrix<const T>, int64_t, Matrix<const T>, Matrix<float>);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(Bf16)
#undef LOCKSTEP_INSTANTIATE
template void OneDnnMatMul<Bf16, Bf16>(Team&, Matrix<const Bf16>, const PackedMatrix<Bf16>&, Matrix<Bf16>, Store);

}  // namespace internal
}  // namespace lockstep::model
