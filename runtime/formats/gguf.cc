#include "runtime/formats/gguf.h"

#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/formats/gguf_types.h"
#include "runtime/formats/half.h"
#include "runtime/formats/quote.h"

namespace lockstep::formats {
namespace {

using namespace gguf;  // NOLINT(google-build-using-namespace): the numbers of the format

bool IsInteger(uint32_t type) { return ScalarSize(type) != 0 && type != kFloat32 && type != kFloat64 && type != kBool; }
bool IsFloat(uint32_t type) { return type == kFloat32 || type == kFloat64; }

// False if a uint64 does not fit.
bool LoadInt(uint32_t type, const uint8_t* data, int64_t* out) {
  switch (type) {
    case kUint8:
      *out = *data;
      return true;
    case kInt8:
      *out = static_cast<int8_t>(*data);
      return true;
    case kUint16:
      *out = LoadRaw<uint16_t>(data);
      return true;
    case kInt16:
      *out = LoadRaw<int16_t>(data);
      return true;
    case kUint32:
      *out = LoadRaw<uint32_t>(data);
      return true;
    case kInt32:
      *out = LoadRaw<int32_t>(data);
      return true;
    case kInt64:
      *out = LoadRaw<int64_t>(data);
      return true;
    default: {
      const uint64_t value = LoadRaw<uint64_t>(data);
      *out = static_cast<int64_t>(value);
      return value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    }
  }
}

double LoadFloat(uint32_t type, const uint8_t* data) {
  return type == kFloat32 ? static_cast<double>(LoadRaw<float>(data)) : LoadRaw<double>(data);
}

}  // namespace

const char* GgufTensorTypeName(GgufTensorType type) {
  const BlockFormat* format = FindFormat(static_cast<uint32_t>(type));
  return format == nullptr ? "unknown" : format->name;
}

absl::Status ToFloat(const GgufTensor& tensor, float* out) {
  const uint8_t* in = tensor.data;
  const int64_t count = tensor.num_elements;
  switch (tensor.type) {
    case GgufTensorType::kF32:
      std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
      return absl::OkStatus();
    case GgufTensorType::kF16:
      for (int64_t i = 0; i < count; ++i) out[i] = HalfToFloat(LoadRaw<uint16_t>(in + 2 * i));
      return absl::OkStatus();
    case GgufTensorType::kBf16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(static_cast<uint32_t>(LoadRaw<uint16_t>(in + 2 * i)) << 16);
      }
      return absl::OkStatus();
    case GgufTensorType::kQ8_0:
      for (int64_t block = 0; block < count / 32; ++block, in += 34, out += 32) {
        const float scale = HalfToFloat(LoadRaw<uint16_t>(in));
        for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(static_cast<int8_t>(in[2 + i]));
      }
      return absl::OkStatus();
    case GgufTensorType::kQ4_0:  // byte i holds weight i in its low half and weight i + 16 in its high half
      for (int64_t block = 0; block < count / 32; ++block, in += 18, out += 32) {
        const float scale = HalfToFloat(LoadRaw<uint16_t>(in));
        for (int i = 0; i < 16; ++i) {
          out[i] = scale * static_cast<float>((in[2 + i] & 15) - 8);
          out[i + 16] = scale * static_cast<float>((in[2 + i] >> 4) - 8);
        }
      }
      return absl::OkStatus();
    case GgufTensorType::kQ4_1:
      for (int64_t block = 0; block < count / 32; ++block, in += 20, out += 32) {
        const float scale = HalfToFloat(LoadRaw<uint16_t>(in));
        const float least = HalfToFloat(LoadRaw<uint16_t>(in + 2));
        for (int i = 0; i < 16; ++i) {
          out[i] = scale * static_cast<float>(in[4 + i] & 15) + least;
          out[i + 16] = scale * static_cast<float>(in[4 + i] >> 4) + least;
        }
      }
      return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat("tensor ", Quote(tensor.name), " has an unknown storage type"));
}

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  ASSIGN_OR_RETURN(GgufFile file, Parse(mapped.data(), mapped.size(), path));
  file.mapped_ = std::move(mapped);  // the mapping stays where it is, so the pointers do
  return file;
}

std::vector<std::string> GgufFile::Keys() const {
  std::vector<std::string> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

absl::StatusOr<GgufFile::Value> GgufFile::Get(const std::string& key, bool is_array) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return absl::NotFoundError(absl::StrCat(path_, ": metadata ", key, " is missing"));
  if (found->second.is_array != is_array) {
    return WrongType(key, found->second, is_array ? "an array" : "a single value");
  }
  return found->second;
}

absl::Status GgufFile::WrongType(const std::string& key, const Value& value, const char* wanted) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ": metadata ", key, " is ",
                                                 value.is_array ? "an array of " : "", ValueTypeName(value.type),
                                                 ", not ", wanted));
}

absl::StatusOr<std::string> GgufFile::GetString(const std::string& key) const {
  ASSIGN_OR_RETURN(const Value value, Get(key, false));
  if (value.type != kString) return WrongType(key, value, "a string");
  return std::string(reinterpret_cast<const char*>(value.data + 8), value.num_bytes - 8);
}

absl::StatusOr<int64_t> GgufFile::GetInt(const std::string& key) const {
  ASSIGN_OR_RETURN(const Value value, Get(key, false));
  int64_t result = 0;
  if (!IsInteger(value.type) || !LoadInt(value.type, value.data, &result)) {
    return WrongType(key, value, "an integer of 64 bits");
  }
  return result;
}

absl::StatusOr<double> GgufFile::GetFloat(const std::string& key) const {
  ASSIGN_OR_RETURN(const Value value, Get(key, false));
  if (!IsFloat(value.type)) return WrongType(key, value, "a floating-point number");
  return LoadFloat(value.type, value.data);
}

absl::StatusOr<bool> GgufFile::GetBool(const std::string& key) const {
  ASSIGN_OR_RETURN(const Value value, Get(key, false));
  if (value.type != kBool || *value.data > 1) return WrongType(key, value, "true or false");
  return *value.data == 1;
}

absl::StatusOr<std::vector<std::string>> GgufFile::GetStringArray(const std::string& key) const {
  ASSIGN_OR_RETURN(const Value value, Get(key, true));
  if (value.type != kString) return WrongType(key, value, "an array of strings");
  std::vector<std::string> texts;
  texts.reserve(value.count);
  const uint8_t* at = value.data;
  for (uint64_t i = 0; i < value.count; ++i) {
    const auto length = static_cast<size_t>(LoadRaw<uint64_t>(at));
    texts.emplace_back(reinterpret_cast<const char*>(at + 8), length);
    at += 8 + length;
  }
  return texts;
}

absl::StatusOr<std::vector<int64_t>> GgufFile::GetIntArray(const std::string& key) const {
  ASSIGN_OR_RETURN(const Value value, Get(key, true));
  if (!IsInteger(value.type)) return WrongType(key, value, "an array of integers");
  std::vector<int64_t> numbers(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    if (!LoadInt(value.type, value.data + i * ScalarSize(value.type), &numbers[i])) {
      return WrongType(key, value, "an array of integers of 64 bits");
    }
  }
  return numbers;
}

absl::StatusOr<std::vector<double>> GgufFile::GetFloatArray(const std::string& key) const {
  ASSIGN_OR_RETURN(const Value value, Get(key, true));
  if (!IsFloat(value.type)) return WrongType(key, value, "an array of floating-point numbers");
  std::vector<double> numbers(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    numbers[i] = LoadFloat(value.type, value.data + i * ScalarSize(value.type));
  }
  return numbers;
}

absl::StatusOr<int64_t> GgufFile::GetArraySize(const std::string& key) const {
  ASSIGN_OR_RETURN(const Value value, Get(key, true));
  return static_cast<int64_t>(value.count);
}

const GgufTensor* GgufFile::Find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace lockstep::formats
