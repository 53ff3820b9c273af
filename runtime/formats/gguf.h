// Reads GGUF files (versions 2 and 3, little-endian): typed metadata and, by name, tensors in the memory of the mapped
// file.
//
//   ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
//   ASSIGN_OR_RETURN(const std::vector<std::string> words, file.GetStringArray("tokenizer.ggml.tokens"));
//   const GgufTensor* tensor = file.Find("token_embd.weight");
//   std::vector<float> values(tensor->num_elements);
//   RETURN_IF_ERROR(ToFloat(*tensor, values.data()));
//
// Grammar (all integers little-endian, `string` = u64 length, bytes):
//   file     = "GGUF" u32 version, u64 num_tensors, u64 num_entries, entry*, info*, padding to `general.alignment`,
//   data entry    = string key, u32 type, value value    = scalar | string | u32 element type, u64 count, element* info
//   = string name, u32 num_dims, u64 dim* (fastest first), u32 type, u64 offset into data
//
// Nothing in the file is trusted: every length, count, offset and size is compared with the file before it is used,
// memory is taken in proportion to the file, tensors may not overlap. Open returns NotFound or PermissionDenied for the
// file itself, InvalidArgument for a broken file (the message has the path and what is wrong), Unimplemented for a
// tensor type this reader does not know.
//
// Thread contract: immutable once open.
#ifndef LOCKSTEP_RUNTIME_FORMATS_GGUF_H_
#define LOCKSTEP_RUNTIME_FORMATS_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file.h"

namespace lockstep::formats {

// Storage types of tensors; the numbers are the file's.
enum class GgufTensorType : uint32_t { kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kBf16 = 30 };
const char* GgufTensorTypeName(GgufTensorType type);  // "F32", "Q4_1", ...

struct GgufTensor {
  std::string name;
  GgufTensorType type = GgufTensorType::kF32;
  std::vector<int64_t> shape;  // slowest first, as PyTorch writes it (the file has it the other way round): [out, in]
  int64_t num_elements = 0;    // product of shape, >= 1
  const uint8_t* data = nullptr;  // [num_bytes], inside the mapped file
  size_t num_bytes = 0;
};

// Converts to float32, row-major in the order of `shape`. `out`: [num_elements]. Blocks of 32 weights along the last
// dimension: Q8_0 d*q, Q4_0 d*(q - 8), Q4_1 d*q + m (d, m half; product rounded, then the sum).
absl::Status ToFloat(const GgufTensor& tensor, float* out);

class GgufFile {
 public:
  static absl::StatusOr<GgufFile> Open(const std::string& path);
  // The same checks over memory that outlives the object; `name` stands for the path in messages.
  static absl::StatusOr<GgufFile> Parse(const uint8_t* data, size_t num_bytes, const std::string& name);

  GgufFile() = default;
  GgufFile(GgufFile&&) noexcept = default;
  GgufFile& operator=(GgufFile&&) noexcept = default;

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }

  // Metadata. The getters return NotFound for an absent key and InvalidArgument for another type, both naming key and
  // file. GetInt takes any integer type that fits int64, GetFloat any float type.
  bool Has(const std::string& key) const { return values_.count(key) != 0; }
  std::vector<std::string> Keys() const;  // sorted
  absl::StatusOr<std::string> GetString(const std::string& key) const;
  absl::StatusOr<int64_t> GetInt(const std::string& key) const;
  absl::StatusOr<double> GetFloat(const std::string& key) const;
  absl::StatusOr<bool> GetBool(const std::string& key) const;
  absl::StatusOr<std::vector<std::string>> GetStringArray(const std::string& key) const;
  absl::StatusOr<std::vector<int64_t>> GetIntArray(const std::string& key) const;
  absl::StatusOr<std::vector<double>> GetFloatArray(const std::string& key) const;
  // Elements of an array of any type; InvalidArgument if the value is not one.
  absl::StatusOr<int64_t> GetArraySize(const std::string& key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in file order
  const GgufTensor* Find(const std::string& name) const;               // nullptr if absent

 private:
  friend class GgufParser;

  // A value that has passed its bounds checks, still in the file's bytes.
  struct Value {
    uint32_t type = 0;  // of the value, or of the elements of an array
    bool is_array = false;
    uint64_t count = 1;  // elements of an array
    const uint8_t* data = nullptr;
    size_t num_bytes = 0;
  };
  absl::StatusOr<Value> Get(const std::string& key, bool is_array) const;
  absl::Status WrongType(const std::string& key, const Value& value, const char* wanted) const;

  MappedFile mapped_;  // empty after Parse
  std::string path_;
  uint32_t version_ = 0;
  std::map<std::string, Value> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t> index_;  // name -> position in tensors_
};

}  // namespace lockstep::formats

#endif  // LOCKSTEP_RUNTIME_FORMATS_GGUF_H_
