#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/formats/gguf.h"
#include "runtime/formats/gguf_types.h"
#include "runtime/formats/quote.h"

namespace lockstep::formats {
namespace {

using namespace gguf;  // NOLINT(google-build-using-namespace): the numbers of the format

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
    *value = LoadRaw<T>(data_ + at_);
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

absl::StatusOr<GgufFile> GgufFile::Parse(const uint8_t* data, size_t num_bytes, const std::string& name) {
  return GgufParser(data, num_bytes, name).Run();
}

}  // namespace lockstep::formats
