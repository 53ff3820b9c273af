#include "runtime/formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/formats/half.h"
#include "runtime/formats/quote.h"

namespace lockstep::formats {
namespace {

// A map for objects: a header may name a million tensors, and looking each up in a list would take hours.
using HeaderJson = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct DTypeInfo {
  SafetensorsDType dtype;
  const char* name;
  int64_t size;
};

constexpr DTypeInfo kDTypes[] = {
    {SafetensorsDType::kBool, "BOOL", 1},      {SafetensorsDType::kU8, "U8", 1},
    {SafetensorsDType::kI8, "I8", 1},          {SafetensorsDType::kF8E4M3, "F8_E4M3", 1},
    {SafetensorsDType::kF8E5M2, "F8_E5M2", 1}, {SafetensorsDType::kU16, "U16", 2},
    {SafetensorsDType::kI16, "I16", 2},        {SafetensorsDType::kF16, "F16", 2},
    {SafetensorsDType::kBf16, "BF16", 2},      {SafetensorsDType::kU32, "U32", 4},
    {SafetensorsDType::kI32, "I32", 4},        {SafetensorsDType::kF32, "F32", 4},
    {SafetensorsDType::kU64, "U64", 8},        {SafetensorsDType::kI64, "I64", 8},
    {SafetensorsDType::kF64, "F64", 8},
};

const DTypeInfo& InfoOf(SafetensorsDType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

bool ToCount(const HeaderJson& value, uint64_t* out) {
  if (!value.is_number_unsigned()) return false;
  *out = value.get<uint64_t>();
  return true;
}

class HeaderParser {
 public:
  HeaderParser(const uint8_t* data, size_t num_bytes, const std::string& path)
      : data_(data), size_(num_bytes), path_(path) {}

  absl::Status Run(std::vector<SafetensorsTensor>* tensors, std::map<std::string, std::string>* metadata) {
    HeaderJson header;
    RETURN_IF_ERROR(ParseHeader(&header));
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        RETURN_IF_ERROR(ReadMetadata(entry, metadata));
        continue;
      }
      SafetensorsTensor tensor;
      tensor.name = name;
      RETURN_IF_ERROR(ReadTensor(entry, &tensor));
      tensors->push_back(std::move(tensor));
    }
    return CheckLayout(*tensors);
  }

 private:
  absl::Status Broken(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": not a usable safetensors file: ", what));
  }

  absl::Status ParseHeader(HeaderJson* header) {
    uint64_t header_bytes = 0;
    if (size_ < 8) return Broken(absl::StrCat("it has ", size_, " bytes, the header size alone takes 8"));
    std::memcpy(&header_bytes, data_, 8);
    if (header_bytes > kMaxHeaderBytes) return Broken(absl::StrCat("its header claims ", header_bytes, " bytes"));
    if (header_bytes > size_ - 8) {
      return Broken(absl::StrCat("it ends inside the header (", size_, " bytes; a download cut short?)"));
    }
    const char* begin = reinterpret_cast<const char*>(data_ + 8);
    if (header_bytes == 0 || *begin != '{') return Broken("the header is not a JSON object");
    payload_ = data_ + 8 + header_bytes;
    payload_bytes_ = size_ - 8 - header_bytes;
    return ParseJson(begin, begin + header_bytes, header);
  }

  // Names and fields given twice would pass silently: the parser keeps the last. So keys are counted as they come.
  absl::Status ParseJson(const char* begin, const char* end, HeaderJson* header) const {
    constexpr int kMaxDepth = 3;
    size_t num_keys[kMaxDepth + 1] = {};
    bool too_deep = false;
    const auto count = [&](int depth, HeaderJson::parse_event_t event, HeaderJson&) {
      if (event == HeaderJson::parse_event_t::key && depth <= kMaxDepth) ++num_keys[depth];
      too_deep = too_deep || depth > kMaxDepth;
      return !too_deep;  // drops what is nested deeper than any header
    };
    *header = HeaderJson::parse(begin, end, count, /*allow_exceptions=*/false);
    if (too_deep) return Broken("the header is nested too deep");
    if (!header->is_object()) return Broken("the header is not valid JSON");
    size_t num_fields = 0;
    for (const auto& [name, entry] : header->items()) num_fields += entry.is_object() ? entry.size() : 0;
    if (num_keys[1] != header->size()) return Broken("the header names a tensor twice");
    if (num_keys[2] != num_fields) return Broken("the header gives a field twice");
    return absl::OkStatus();
  }

  absl::Status ReadMetadata(const HeaderJson& entry, std::map<std::string, std::string>* metadata) const {
    if (!entry.is_object()) return Broken("__metadata__ is not an object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) return Broken(absl::StrCat("__metadata__ ", Quote(key), " is not a string"));
      metadata->emplace(key, value.get<std::string>());
    }
    return absl::OkStatus();
  }

  absl::Status ReadTensor(const HeaderJson& entry, SafetensorsTensor* tensor) const {
    const std::string name = absl::StrCat("tensor ", Quote(tensor->name));
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
        !entry.contains("data_offsets")) {
      return Broken(absl::StrCat(name, " has not exactly the fields dtype, shape and data_offsets"));
    }
    RETURN_IF_ERROR(ReadDType(name, entry["dtype"], tensor));
    RETURN_IF_ERROR(ReadShape(name, entry["shape"], tensor));
    const HeaderJson& offsets = entry["data_offsets"];
    uint64_t begin = 0;
    uint64_t end = 0;
    if (!offsets.is_array() || offsets.size() != 2 || !ToCount(offsets[0], &begin) || !ToCount(offsets[1], &end) ||
        begin > end) {
      return Broken(absl::StrCat(name, " has no pair of data_offsets"));
    }
    if (end > payload_bytes_) {
      return Broken(absl::StrCat(name, " ends at byte ", end, " of the data, which has ", payload_bytes_,
                                 " (a download cut short?)"));
    }
    tensor->data = payload_ + begin;
    tensor->num_bytes = end - begin;
    const auto expected = static_cast<uint64_t>(tensor->num_elements * SafetensorsDTypeSize(tensor->dtype));
    if (tensor->num_bytes != expected) {
      return Broken(absl::StrCat(name, " has ", tensor->num_bytes, " bytes, but its shape and dtype need ", expected));
    }
    return absl::OkStatus();
  }

  absl::Status ReadDType(const std::string& name, const HeaderJson& value, SafetensorsTensor* tensor) const {
    if (!value.is_string()) return Broken(absl::StrCat(name, " has a dtype that is not a string"));
    const auto& dtype = value.get_ref<const std::string&>();
    const auto* found =
        std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const DTypeInfo& info) { return dtype == info.name; });
    if (found == std::end(kDTypes)) return Broken(absl::StrCat(name, " has the unknown dtype ", Quote(dtype)));
    tensor->dtype = found->dtype;
    return absl::OkStatus();
  }

  absl::Status ReadShape(const std::string& name, const HeaderJson& shape, SafetensorsTensor* tensor) const {
    constexpr size_t kMaxDims = 16;
    if (!shape.is_array() || shape.size() > kMaxDims) {
      return Broken(absl::StrCat(name, " has no shape of at most ", kMaxDims, " dimensions"));
    }
    // The product of the dimensions other than 0 is bounded by the file, which keeps every later product within int64.
    uint64_t product = 1;
    bool is_empty = false;
    for (const HeaderJson& value : shape) {
      uint64_t dim = 0;
      if (!ToCount(value, &dim)) return Broken(absl::StrCat(name, " has a dimension that is not a count"));
      if (dim > 0 && dim > std::max<uint64_t>(size_, 1) / product) {
        return Broken(absl::StrCat(name, " has a shape larger than the file"));
      }
      if (dim > 0) product *= dim;
      is_empty = is_empty || dim == 0;
      tensor->shape.push_back(static_cast<int64_t>(dim));
    }
    tensor->num_elements = is_empty ? 0 : static_cast<int64_t>(product);
    return absl::OkStatus();
  }

  // Tensors fill the data part one after another: no overlap, no hole, nothing behind the last.
  absl::Status CheckLayout(const std::vector<SafetensorsTensor>& tensors) const {
    std::vector<const SafetensorsTensor*> order;
    order.reserve(tensors.size());
    for (const SafetensorsTensor& tensor : tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const SafetensorsTensor* a, const SafetensorsTensor* b) {
      return a->data != b->data ? a->data < b->data : a->num_bytes < b->num_bytes;
    });
    const uint8_t* next = payload_;
    for (const SafetensorsTensor* tensor : order) {
      if (tensor->data < next) return Broken(absl::StrCat("tensor ", Quote(tensor->name), " overlaps another"));
      if (tensor->data > next) return Broken(absl::StrCat("there is a hole before tensor ", Quote(tensor->name)));
      next = tensor->data + tensor->num_bytes;
    }
    if (next != payload_ + payload_bytes_) {
      return Broken(absl::StrCat(payload_ + payload_bytes_ - next, " bytes at the end belong to no tensor"));
    }
    return absl::OkStatus();
  }

  const uint8_t* data_;
  size_t size_;
  const std::string& path_;
  const uint8_t* payload_ = nullptr;
  uint64_t payload_bytes_ = 0;
};

}  // namespace

const char* SafetensorsDTypeName(SafetensorsDType dtype) { return InfoOf(dtype).name; }
int64_t SafetensorsDTypeSize(SafetensorsDType dtype) { return InfoOf(dtype).size; }

absl::Status ToFloat(const SafetensorsTensor& tensor, float* out) {
  const auto half_at = [&](int64_t i) {
    uint16_t bits;
    std::memcpy(&bits, tensor.data + 2 * i, sizeof(bits));
    return bits;
  };
  switch (tensor.dtype) {
    case SafetensorsDType::kF32:
      if (tensor.num_bytes != 0) std::memcpy(out, tensor.data, tensor.num_bytes);
      return absl::OkStatus();
    case SafetensorsDType::kF16:
      for (int64_t i = 0; i < tensor.num_elements; ++i) out[i] = HalfToFloat(half_at(i));
      return absl::OkStatus();
    case SafetensorsDType::kBf16:
      for (int64_t i = 0; i < tensor.num_elements; ++i) {
        out[i] = std::bit_cast<float>(static_cast<uint32_t>(half_at(i)) << 16);
      }
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quote(tensor.name), " is stored as ",
                                                     SafetensorsDTypeName(tensor.dtype),
                                                     "; weights may be F32, F16 or BF16"));
  }
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  ASSIGN_OR_RETURN(SafetensorsFile file, Parse(mapped.data(), mapped.size(), path));
  file.mapped_ = std::move(mapped);  // the mapping stays where it is, so the pointers do
  return file;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(const uint8_t* data, size_t num_bytes, const std::string& name) {
  SafetensorsFile file;
  file.path_ = name;
  RETURN_IF_ERROR(HeaderParser(data, num_bytes, file.path_).Run(&file.tensors_, &file.metadata_));
  return file;
}

const SafetensorsTensor* SafetensorsFile::Find(const std::string& name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const SafetensorsTensor& tensor, const std::string& wanted) { return tensor.name < wanted; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

}  // namespace lockstep::formats
