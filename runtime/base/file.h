// Files: reading whole, writing durably, mapping read-only.
#ifndef LOCKSTEP_RUNTIME_BASE_FILE_H_
#define LOCKSTEP_RUNTIME_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

absl::StatusOr<std::string> ReadFile(const std::string& path);

// Complete or absent: writes a temporary file beside `path` (mode 0600), fsyncs it, renames it over `path`, fsyncs the
// folder.
absl::Status WriteFileDurably(const std::string& path, const std::string& contents);

// Creates the folder and its parents (mode 0700); existing ones are fine.
absl::Status MakeDirs(const std::string& path);

// A file mapped read-only. Errors: NotFound, PermissionDenied, InvalidArgument for something that is not a plain file.
// Movable; immutable and so thread-safe. The file must not shrink while it is mapped.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const uint8_t* data() const { return data_; }  // [size()] bytes; nullptr if the file is empty
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_BASE_FILE_H_
