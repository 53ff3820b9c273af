#include "runtime/device/tensor.h"

#include <sys/mman.h>

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

namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Buffer::Buffer(size_t num_bytes) : num_bytes_(num_bytes) {
  if (num_bytes == 0) return;
  // Large buffers ask for huge pages: fewer page faults while they fill, fewer misses of the address cache ever after.
  const bool huge = num_bytes >= 2 * kHugePage;
  const size_t alignment = huge ? kHugePage : kCacheLine;
  const size_t rounded = (num_bytes + alignment - 1) / alignment * alignment;
  data_ = static_cast<uint8_t*>(std::aligned_alloc(alignment, rounded));
  CHECK(data_ != nullptr);
  if (huge) madvise(data_, rounded, MADV_HUGEPAGE);  // a wish: where it is not granted, small pages serve as well
}

Buffer Buffer::Zeroed(size_t num_bytes) {
  Buffer buffer(num_bytes);
  if (num_bytes > 0) std::memset(buffer.data_, 0, num_bytes);
  return buffer;
}

Buffer::~Buffer() { std::free(data_); }

}  // namespace lockstep
