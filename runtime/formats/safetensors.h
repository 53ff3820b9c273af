// Reads and writes safetensors files (https://github.com/huggingface/safetensors, format section of its README).
//
//   ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
//   const SafetensorsTensor* tensor = file.Find("model.norm.weight");
//
// Grammar: u64 header size (little-endian), header, data. The header is a JSON object of
//   name: {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}      offsets count from the start of data
// and an optional "__metadata__" of strings; it may be padded with spaces.
//
// Nothing in the file is trusted: a header of more than 100 MB, a name or field given twice, a size that does not
// follow from dtype and shape, an overlap, a hole, bytes beyond the last tensor are InvalidArgument errors that name
// file and tensor. NotFound and PermissionDenied concern the file itself.
//
// Thread contract: an open file is immutable; a writer belongs to one thread.
#ifndef LOCKSTEP_RUNTIME_FORMATS_SAFETENSORS_H_
#define LOCKSTEP_RUNTIME_FORMATS_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file.h"

namespace lockstep::formats {

enum class SafetensorsDType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kU16,
  kI16,
  kF16,
  kBf16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64
};
const char* SafetensorsDTypeName(SafetensorsDType dtype);  // as in the file: "F32", "BF16", "F8_E4M3", ...
int64_t SafetensorsDTypeSize(SafetensorsDType dtype);      // bytes of one element

struct SafetensorsTensor {
  std::string name;
  SafetensorsDType dtype = SafetensorsDType::kF32;
  std::vector<int64_t> shape;     // [] is a scalar; a dimension may be 0
  int64_t num_elements = 0;       // product of shape
  const uint8_t* data = nullptr;  // [num_bytes], row-major, inside the mapped file; NOT aligned to the element size
  size_t num_bytes = 0;
};

// Converts F32, F16 or BF16 to float32 (exact). `out`: [num_elements]. InvalidArgument for another dtype.
absl::Status ToFloat(const SafetensorsTensor& tensor, float* out);

class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  // The same checks over memory that outlives the object; `name` stands for the path in messages.
  static absl::StatusOr<SafetensorsFile> Parse(const uint8_t* data, size_t num_bytes, const std::string& name);

  SafetensorsFile() = default;
  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept = default;

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }        // sorted by name
  const SafetensorsTensor* Find(const std::string& name) const;                     // nullptr if absent
  const std::map<std::string, std::string>& metadata() const { return metadata_; }  // "__metadata__"

 private:
  MappedFile mapped_;  // empty after Parse
  std::string path_;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// What a file will hold, known before its data.
struct SafetensorsSpec {
  std::string name;
  SafetensorsDType dtype = SafetensorsDType::kF32;
  std::vector<int64_t> shape;
};

// Writes a file piece by piece, complete or absent: a temporary file beside it (mode 0600) is fsynced and renamed by
// Finish; dropped without Finish it is removed. The data part begins at a multiple of 8 bytes.
//
//   ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, specs, {{"format", "pt"}}));
//   for (...) RETURN_IF_ERROR(writer.Append(data, num_bytes));     // all tensors in the order of specs, any pieces
//   RETURN_IF_ERROR(writer.Finish());
//
// Create returns InvalidArgument for a name given twice, an empty name, "__metadata__" or a negative dimension; Append
// and Finish FailedPrecondition for more or fewer bytes than the specs say; all three the errors of the file system.
class SafetensorsWriter {
 public:
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path, const std::vector<SafetensorsSpec>& specs,
                                                  const std::map<std::string, std::string>& metadata = {});
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();

  absl::Status Append(const void* data, size_t num_bytes);
  absl::Status Finish();

 private:
  class TemporaryFile;
  SafetensorsWriter();

  std::unique_ptr<TemporaryFile> file_;
  uint64_t bytes_left_ = 0;
};

}  // namespace lockstep::formats

#endif  // LOCKSTEP_RUNTIME_FORMATS_SAFETENSORS_H_
