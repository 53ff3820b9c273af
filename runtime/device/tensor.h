// Views of matrices and the memory behind them. Host memory now; a device's memory will stand beside it.
//
// A view never owns, is passed by value and is as const as its element type: Matrix<const float> is read-only. Rows are
// contiguous, `stride` elements apart.
#ifndef LOCKSTEP_RUNTIME_DEVICE_TENSOR_H_
#define LOCKSTEP_RUNTIME_DEVICE_TENSOR_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "runtime/base/check.h"

namespace lockstep {

enum class DType : uint8_t { kF32, kBf16, kF16 };
int64_t SizeOf(DType dtype);         // bytes of one element
const char* DTypeName(DType dtype);  // "f32", "bf16", "f16"

// bfloat16 as stored: the upper half of a float32.
struct Bf16 {
  uint16_t bits = 0;
  friend bool operator==(Bf16 a, Bf16 b) { return a.bits == b.bits; }
};

// Round to nearest, ties to even; NaN stays NaN. The one rounding rule of the project, vectorised kernels included.
inline Bf16 ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return Bf16{static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return Bf16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
inline float ToFloat(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }
inline float ToFloat(float value) { return value; }

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::kBf16;
};

template <typename T>
struct Matrix {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements between the starts of two rows, >= cols

  Matrix() = default;
  Matrix(T* data, int64_t rows, int64_t cols) : Matrix(data, rows, cols, cols) {}
  Matrix(T* data, int64_t rows, int64_t cols, int64_t stride) : data(data), rows(rows), cols(cols), stride(stride) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a writable view is a read-only view
  operator Matrix<const T>() const requires(!std::is_const_v<T>) { return Matrix<const T>(data, rows, cols, stride); }

  T* row(int64_t r) const { return data + r * stride; }
  Matrix Rows(int64_t begin, int64_t end) const { return Matrix(row(begin), end - begin, cols, stride); }
  Matrix Cols(int64_t begin, int64_t end) const { return Matrix(data + begin, rows, end - begin, stride); }
};

// 64-byte aligned memory. Uninitialised unless made with Zeroed. Move-only.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t num_bytes);
  static Buffer Zeroed(size_t num_bytes);
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(num_bytes_, other.num_bytes_);
    return *this;
  }
  ~Buffer();

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return num_bytes_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  uint8_t* data_ = nullptr;
  size_t num_bytes_ = 0;
};

// An owned matrix with contiguous rows.
template <typename T>
class OwnedMatrix {
 public:
  OwnedMatrix() = default;
  OwnedMatrix(int64_t rows, int64_t cols)
      : buffer_(static_cast<size_t>(rows * cols) * sizeof(T)), rows_(rows), cols_(cols) {}
  Matrix<T> view() { return Matrix<T>(buffer_.as<T>(), rows_, cols_); }
  Matrix<const T> view() const { return Matrix<const T>(buffer_.as<T>(), rows_, cols_); }
  T* data() { return buffer_.as<T>(); }
  const T* data() const { return buffer_.as<T>(); }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // Keeps the memory where it is large enough; contents are then undefined.
  void Resize(int64_t rows, int64_t cols) {
    const size_t bytes = static_cast<size_t>(rows * cols) * sizeof(T);
    if (bytes > buffer_.size()) buffer_ = Buffer(bytes);
    rows_ = rows;
    cols_ = cols;
  }

 private:
  Buffer buffer_;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_DEVICE_TENSOR_H_
