#include "runtime/device/tensor.h"

#include <cstdlib>
#include <cstring>

namespace lockstep {

int64_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "f16";
  }
  return "?";
}

Buffer::Buffer(size_t num_bytes) : num_bytes_(num_bytes) {
  if (num_bytes == 0) return;
  const size_t rounded = (num_bytes + 63) / 64 * 64;
  data_ = static_cast<uint8_t*>(std::aligned_alloc(64, rounded));
  CHECK(data_ != nullptr);
}

Buffer Buffer::Zeroed(size_t num_bytes) {
  Buffer buffer(num_bytes);
  if (num_bytes > 0) std::memset(buffer.data_, 0, num_bytes);
  return buffer;
}

Buffer::~Buffer() { std::free(data_); }

}  // namespace lockstep
