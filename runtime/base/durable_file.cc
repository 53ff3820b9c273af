#include "runtime/base/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace lockstep {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

absl::Status SyncFolderOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const int fd = open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "cannot open the folder of " + path);
  const int result = fsync(fd);
  const int error_number = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : ErrnoStatus(error_number, "cannot flush the folder of " + path);
}

}  // namespace

absl::Status WriteFully(int fd, const void* data, size_t num_bytes, const std::string& path) {
  constexpr size_t kMaxWrite = size_t{1} << 30;  // one write moves at most 2 GB
  const char* at = static_cast<const char*>(data);
  while (num_bytes > 0) {
    const ssize_t n = write(fd, at, std::min(num_bytes, kMaxWrite));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "cannot write " + path);
    at += n;
    num_bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status AppendRecord(int fd, const void* data, size_t num_bytes, const std::string& path) {
  struct stat info;
  const bool can_take_back = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const absl::Status written = WriteFully(fd, data, num_bytes, path);
  if (!written.ok() && can_take_back && ftruncate(fd, info.st_size) != 0) {
    return AddContext(written, path + " now ends in half a record");
  }
  return written;
}

DurableFile::DurableFile(const std::string& path) : path_(path), temporary_(absl::StrCat(path, ".tmp.", getpid())) {}

DurableFile::~DurableFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

absl::Status DurableFile::Open() {
  CHECK_LT(fd_, 0);
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd_ < 0) return ErrnoStatus(errno, "cannot create " + temporary_);
  return absl::OkStatus();
}

absl::Status DurableFile::Append(const void* data, size_t num_bytes) {
  CHECK_GE(fd_, 0);
  if (buffer_.size() + num_bytes <= kBufferBytes) {
    buffer_.append(static_cast<const char*>(data), num_bytes);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(FlushBuffer());
  return WriteFully(fd_, data, num_bytes, temporary_);
}

absl::Status DurableFile::FlushBuffer() {
  RETURN_IF_ERROR(WriteFully(fd_, buffer_.data(), buffer_.size(), temporary_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status DurableFile::Commit() {
  CHECK_GE(fd_, 0);
  RETURN_IF_ERROR(FlushBuffer());
  if (fsync(fd_) != 0) return ErrnoStatus(errno, "cannot flush " + temporary_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return ErrnoStatus(errno, "cannot rename to " + path_);
  const int result = close(fd_);
  const int error_number = errno;
  fd_ = -1;
  if (result != 0) return ErrnoStatus(error_number, "cannot close " + path_);
  return SyncFolderOf(path_);
}

}  // namespace lockstep
