// What the GGUF parser and the typed getters share: the numbers of the format. Internal to runtime/formats.
#ifndef LOCKSTEP_RUNTIME_FORMATS_GGUF_TYPES_H_
#define LOCKSTEP_RUNTIME_FORMATS_GGUF_TYPES_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "runtime/formats/gguf.h"

namespace lockstep::formats::gguf {

static_assert(std::endian::native == std::endian::little, "the file's integers are copied as they are");

// Metadata types; the numbers are the file's.
enum ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

inline const char* ValueTypeName(uint32_t type) {
  static constexpr const char* kNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                           "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return type < std::size(kNames) ? kNames[type] : "unknown";
}

// Bytes of a scalar; 0 for strings, arrays and unknown types.
inline size_t ScalarSize(uint32_t type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    case kUint64:
    case kInt64:
    case kFloat64:
      return 8;
    default:
      return 0;
  }
}

template <typename T>
T LoadRaw(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

struct BlockFormat {
  GgufTensorType type;
  const char* name;
  int64_t weights;  // in a block
  int64_t bytes;    // of a block
};

inline constexpr BlockFormat kFormats[] = {
    {GgufTensorType::kF32, "F32", 1, 4},     {GgufTensorType::kF16, "F16", 1, 2},
    {GgufTensorType::kQ4_0, "Q4_0", 32, 18}, {GgufTensorType::kQ4_1, "Q4_1", 32, 20},
    {GgufTensorType::kQ8_0, "Q8_0", 32, 34}, {GgufTensorType::kBf16, "BF16", 1, 2},
};

inline const BlockFormat* FindFormat(uint32_t type) {
  for (const BlockFormat& format : kFormats) {
    if (static_cast<uint32_t>(format.type) == type) return &format;
  }
  return nullptr;
}

}  // namespace lockstep::formats::gguf

#endif  // LOCKSTEP_RUNTIME_FORMATS_GGUF_TYPES_H_
