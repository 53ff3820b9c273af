#include "runtime/formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/formats/half.h"

namespace lockstep::formats {
namespace {

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

const char* ValueTypeName(uint32_t type) {
  static constexpr const char* kNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                           "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return type < std::size(kNames) ? kNames[type] : "unknown";
}

// Bytes of a scalar; 0 for strings, arrays and unknown types.
size_t ScalarSize(uint32_t type) {
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

bool IsInteger(uint32_t type) { return ScalarSize(type) != 0 && type != kFloat32 && type != kFloat64 && type != kBool; }
bool IsFloat(uint32_t type) { return type == kFloat32 || type == kFloat64; }

template <typename T>
T Load(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

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
      *out = Load<uint16_t>(data);
      return true;
    case kInt16:
      *out = Load<int16_t>(data);
      return true;
    case kUint32:
      *out = Load<uint32_t>(data);
      return true;
    case kInt32:
      *out = Load<int32_t>(data);
      return true;
    case kInt64:
      *out = Load<int64_t>(data);
      return true;
    default: {
      const uint64_t value = Load<uint64_t>(data);
      *out = static_cast<int64_t>(value);
      return value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    }
  }
}

double LoadFloat(uint32_t type, const uint8_t* data) {
  return type == kFloat32 ? static_cast<double>(Load<float>(data)) : Load<double>(data);
}

struct BlockFormat {
  GgufTensorType type;
  const char* name;
  int64_t weights;  // in a block
  int64_t bytes;    // of a block
};

constexpr BlockFormat kFormats[] = {
    {GgufTensorType::kF32, "F32", 1, 4},     {GgufTensorType::kF16, "F16", 1, 2},
    {GgufTensorType::kQ4_0, "Q4_0", 32, 18}, {GgufTensorType::kQ4_1, "Q4_1", 32, 20},
    {GgufTensorType::kQ8_0, "Q8_0", 32, 34}, {GgufTensorType::kBf16, "BF16", 1, 2},
};

const BlockFormat* FindFormat(uint32_t type) {
  for (const BlockFormat& format : kFormats) {
    if (static_cast<uint32_t>(format.type) == type) return &format;
  }
  return nullptr;
}

// Names of tensor types that exist but are not read here, for the message.
const char* ForeignTypeName(uint32_t type) {
  switch (type) {
    case 6:
      return "Q5_0";
    case 7:
      return "Q5_1";
    case 9:
      return "Q8_1";
    case 10:
      return "Q2_K";
    case 11:
      return "Q3_K";
    case 12:
      return "Q4_K";
    case 13:
      return "Q5_K";
    case 14:
      return "Q6_K";
    case 15:
      return "Q8_K";
    default:
      return "unknown here";
  }
}

// A name as it may appear in a message: long or unprintable ones are cut.
std::string Quote(const std::string& text) {
  constexpr size_t kMaxShown = 120;
  std::string shown = "'";
  for (const char c : text.substr(0, kMaxShown)) shown += c >= 0x20 && c < 0x7f ? c : '?';
  return shown + (text.size() > kMaxShown ? "...'" : "'");
}

}  // namespace

// Walks the file once. `at_` only moves over bytes that exist.
class GgufParser {
 public:
  GgufParser(const uint8_t* data, size_t num_bytes, const std::string& path) : data_(data), size_(num_bytes) {
    file_.path_ = path;
  }

  absl::StatusOr<GgufFile> Run() {
    uint64_t num_tensors = 0;
    uint64_t num_entries = 0;
    RETURN_IF_ERROR(ReadHeader(&num_tensors, &num_entries));
    for (uint64_t i = 0; i < num_entries; ++i) RETURN_IF_ERROR(ReadEntry(i));
    RETURN_IF_ERROR(ReadAlignment());
    for (uint64_t i = 0; i < num_tensors; ++i) RETURN_IF_ERROR(ReadInfo(i));
    RETURN_IF_ERROR(PlaceTensors());
    return std::move(file_);
  }

 private:
  absl::Status Broken(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_.path_, ": not a usable GGUF file: ", what));
  }
  absl::Status Truncated(const std::string& where) const {
    return Broken(absl::StrCat("it ends inside ", where, " (", size_, " bytes; a download cut short?)"));
  }

  uint64_t left() const { return size_ - at_; }

  template <typename T>
  bool Take(T* value) {
    if (left() < sizeof(T)) return false;
    *value = Load<T>(data_ + at_);
    at_ += sizeof(T);
    return true;
  }

  bool TakeString(std::string* text) {
    uint64_t length = 0;
    if (!Take(&length) || length > left()) return false;
    text->assign(reinterpret_cast<const char*>(data_ + at_), length);
    at_ += length;
    return true;
  }

  absl::Status ReadHeader(uint64_t* num_tensors, uint64_t* num_entries) {
    if (left() < 4 || std::memcmp(data_, "GGUF", 4) != 0) return Broken("it does not begin with \"GGUF\"");
    at_ = 4;
    if (!Take(&file_.version_)) return Truncated("the header");
    if (file_.version_ == 0x02000000u || file_.version_ == 0x03000000u) return Broken("it is big-endian");
    if (file_.version_ != 2 && file_.version_ != 3) {
      return Broken(absl::StrCat("version ", file_.version_, "; this reader knows 2 and 3"));
    }
    if (!Take(num_tensors) || !Take(num_entries)) return Truncated("the header");
    // The smallest entry has an empty key, a type and one byte; the smallest info an empty name and one dimension.
    if (*num_entries > left() / 13) return Broken(absl::StrCat("it claims ", *num_entries, " metadata entries"));
    if (*num_tensors > left() / 32) return Broken(absl::StrCat("it claims ", *num_tensors, " tensors"));
    return absl::OkStatus();
  }

  absl::Status ReadEntry(uint64_t number) {
    std::string key;
    GgufFile::Value value;
    if (!TakeString(&key)) return Truncated(absl::StrCat("metadata entry ", number));
    if (!Take(&value.type)) return Truncated(absl::StrCat("metadata ", Quote(key)));
    value.is_array = value.type == kArray;
    if (value.is_array && (!Take(&value.type) || !Take(&value.count))) {
      return Truncated(absl::StrCat("metadata ", Quote(key)));
    }
    const size_t begin = at_;
    RETURN_IF_ERROR(SkipValues(value.type, value.count, /*depth=*/1, key));
    value.data = data_ + begin;
    value.num_bytes = at_ - begin;
    if (!file_.values_.emplace(key, value).second) return Broken(absl::StrCat("metadata ", Quote(key), " comes twice"));
    return absl::OkStatus();
  }

  // Moves over `count` values of one type, checking that they end inside the file.
  absl::Status SkipValues(uint32_t type, uint64_t count, int depth, const std::string& key) {
    constexpr int kMaxDepth = 8;
    if (const size_t size = ScalarSize(type); size != 0) {
      if (count > left() / size) return Truncated(absl::StrCat("metadata ", Quote(key)));
      at_ += count * size;
      return absl::OkStatus();
    }
    if (type != kString && type != kArray) {
      return Broken(absl::StrCat("metadata ", Quote(key), " has the unknown type ", type));
    }
    if (depth > kMaxDepth) return Broken(absl::StrCat("metadata ", Quote(key), " is nested too deep"));
    for (uint64_t i = 0; i < count; ++i) {  // each turn consumes at least 8 bytes or fails
      uint64_t length = 0;
      uint32_t element_type = kUint8;  // a string is its bytes
      if (type == kArray && !Take(&element_type)) return Truncated(absl::StrCat("metadata ", Quote(key)));
      if (!Take(&length)) return Truncated(absl::StrCat("metadata ", Quote(key)));
      RETURN_IF_ERROR(SkipValues(element_type, length, depth + 1, key));
    }
    return absl::OkStatus();
  }

  absl::Status ReadAlignment() {
    if (!file_.Has("general.alignment")) return absl::OkStatus();
    ASSIGN_OR_RETURN(const int64_t alignment, file_.GetInt("general.alignment"));
    if (alignment < 1 || alignment > (int64_t{1} << 20) || !std::has_single_bit(static_cast<uint64_t>(alignment))) {
      return Broken(absl::StrCat("general.alignment is ", alignment, ", not a power of two"));
    }
    alignment_ = static_cast<uint64_t>(alignment);
    return absl::OkStatus();
  }

  absl::Status ReadInfo(uint64_t number) {
    constexpr uint32_t kMaxDims = 4;
    GgufTensor tensor;
    uint32_t num_dims = 0;
    if (!TakeString(&tensor.name) || !Take(&num_dims)) return Truncated(absl::StrCat("tensor info ", number));
    const std::string name = absl::StrCat("tensor ", Quote(tensor.name));
    if (num_dims < 1 || num_dims > kMaxDims) return Broken(absl::StrCat(name, " has ", num_dims, " dimensions"));
    tensor.num_elements = 1;
    for (uint32_t i = 0; i < num_dims; ++i) {
      uint64_t dim = 0;
      if (!Take(&dim)) return Truncated(name);
      // A weight takes at least half a byte, so nothing larger than twice the file can be real.
      const uint64_t most = 2 * static_cast<uint64_t>(size_) / static_cast<uint64_t>(tensor.num_elements);
      if (dim < 1 || dim > most) return Broken(absl::StrCat(name, " has a dimension of ", dim));
      tensor.num_elements *= static_cast<int64_t>(dim);
      tensor.shape.push_back(static_cast<int64_t>(dim));
    }
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    uint32_t type = 0;
    uint64_t offset = 0;
    if (!Take(&type) || !Take(&offset)) return Truncated(name);
    RETURN_IF_ERROR(SetSize(name, type, &tensor));
    offsets_.push_back(offset);
    if (!file_.index_.emplace(tensor.name, file_.tensors_.size()).second) {
      return Broken(absl::StrCat(name, " comes twice"));
    }
    file_.tensors_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  absl::Status SetSize(const std::string& name, uint32_t type, GgufTensor* tensor) const {
    const BlockFormat* format = FindFormat(type);
    if (format == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat(file_.path_, ": ", name, " is stored as type ", type, " (", ForeignTypeName(type),
                       "); this reader knows F32, F16, BF16, Q8_0, Q4_0 and Q4_1: convert the file to one of them"));
    }
    if (tensor->shape.back() % format->weights != 0) {
      return Broken(absl::StrCat(name, " is ", format->name, " but its rows of ", tensor->shape.back(),
                                 " weights are not whole blocks of ", format->weights));
    }
    tensor->type = format->type;
    tensor->num_bytes = static_cast<size_t>(tensor->num_elements / format->weights * format->bytes);
    return absl::OkStatus();
  }

  // Offsets become pointers; tensors must lie inside the data part and apart from each other.
  absl::Status PlaceTensors() {
    if (file_.tensors_.empty()) return absl::OkStatus();
    const uint64_t begin = (at_ + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t data_bytes = begin > size_ ? 0 : size_ - begin;
    std::vector<size_t> order(file_.tensors_.size());
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
      GgufTensor& tensor = file_.tensors_[i];
      const std::string name = absl::StrCat("tensor ", Quote(tensor.name));
      if (offsets_[i] % alignment_ != 0) return Broken(absl::StrCat(name, " is not aligned to ", alignment_, " bytes"));
      if (offsets_[i] > data_bytes || tensor.num_bytes > data_bytes - offsets_[i]) return Truncated(name);
      tensor.data = data_ + begin + offsets_[i];
    }
    std::sort(order.begin(), order.end(), [this](size_t a, size_t b) { return offsets_[a] < offsets_[b]; });
    for (size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& before = file_.tensors_[order[i - 1]];
      const GgufTensor& after = file_.tensors_[order[i]];
      if (before.data + before.num_bytes > after.data) {
        return Broken(absl::StrCat("tensors ", Quote(before.name), " and ", Quote(after.name), " overlap"));
      }
    }
    return absl::OkStatus();
  }

  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
  uint64_t alignment_ = 32;  // the format's default
  GgufFile file_;
  std::vector<uint64_t> offsets_;  // of each tensor, into the data part
};

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
      for (int64_t i = 0; i < count; ++i) out[i] = HalfToFloat(Load<uint16_t>(in + 2 * i));
      return absl::OkStatus();
    case GgufTensorType::kBf16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(static_cast<uint32_t>(Load<uint16_t>(in + 2 * i)) << 16);
      }
      return absl::OkStatus();
    case GgufTensorType::kQ8_0:
      for (int64_t block = 0; block < count / 32; ++block, in += 34, out += 32) {
        const float scale = HalfToFloat(Load<uint16_t>(in));
        for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(static_cast<int8_t>(in[2 + i]));
      }
      return absl::OkStatus();
    case GgufTensorType::kQ4_0:  // byte i holds weight i in its low half and weight i + 16 in its high half
      for (int64_t block = 0; block < count / 32; ++block, in += 18, out += 32) {
        const float scale = HalfToFloat(Load<uint16_t>(in));
        for (int i = 0; i < 16; ++i) {
          out[i] = scale * static_cast<float>((in[2 + i] & 15) - 8);
          out[i + 16] = scale * static_cast<float>((in[2 + i] >> 4) - 8);
        }
      }
      return absl::OkStatus();
    case GgufTensorType::kQ4_1:
      for (int64_t block = 0; block < count / 32; ++block, in += 20, out += 32) {
        const float scale = HalfToFloat(Load<uint16_t>(in));
        const float least = HalfToFloat(Load<uint16_t>(in + 2));
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

absl::StatusOr<GgufFile> GgufFile::Parse(const uint8_t* data, size_t num_bytes, const std::string& name) {
  return GgufParser(data, num_bytes, name).Run();
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
    const auto length = static_cast<size_t>(Load<uint64_t>(at));
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
