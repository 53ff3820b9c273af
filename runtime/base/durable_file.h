// A file written piece by piece, complete or absent: the pieces go to a temporary file beside `path` (mode 0600),
// Commit fsyncs it, renames it over `path` and fsyncs the folder. Dropped without Commit, the temporary file is
// removed.
//
// Small pieces are gathered into writes of 1 MB. Errors are those of the file system, with the path. One thread.
#ifndef LOCKSTEP_RUNTIME_BASE_DURABLE_FILE_H_
#define LOCKSTEP_RUNTIME_BASE_DURABLE_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace lockstep {

// Writes all of it, going on after short writes and signals.
absl::Status WriteFully(int fd, const void* data, size_t num_bytes, const std::string& path);

// The same for one record at the end of a log opened with O_APPEND: where it does not fit (a full disk), the file is
// cut back to its length before, so that it holds whole records only.
absl::Status AppendRecord(int fd, const void* data, size_t num_bytes, const std::string& path);

class DurableFile {
 public:
  explicit DurableFile(const std::string& path);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  absl::Status Open();
  absl::Status Append(const void* data, size_t num_bytes);
  absl::Status Commit();

 private:
  absl::Status FlushBuffer();

  const std::string path_;
  const std::string temporary_;
  int fd_ = -1;  // open until Commit
  std::string buffer_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_BASE_DURABLE_FILE_H_
