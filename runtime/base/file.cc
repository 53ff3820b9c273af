#include "runtime/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

namespace lockstep {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return ErrnoStatus(errno, "cannot open " + path);
  std::string contents;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(file.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "cannot read " + path);
    if (n == 0) return contents;
    contents.append(buffer, static_cast<size_t>(n));
  }
}

absl::Status WriteFileDurably(const std::string& path, const std::string& contents) {
  DurableFile file(path);
  RETURN_IF_ERROR(file.Open());
  RETURN_IF_ERROR(file.Append(contents.data(), contents.size()));
  return file.Commit();
}

absl::Status MakeDirs(const std::string& path) {
  namespace fs = std::filesystem;
  fs::path so_far;
  for (const fs::path& part : fs::path(path)) {
    so_far /= part;
    if (so_far.empty() || mkdir(so_far.c_str(), 0700) == 0 || errno == EEXIST) continue;
    return ErrnoStatus(errno, "cannot create the folder " + so_far.string());
  }
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return absl::InvalidArgumentError(path + " exists and is not a folder");
  return absl::OkStatus();
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return ErrnoStatus(errno, "cannot open " + path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "cannot look at " + path);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(path + " is not a plain file");
  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_ = static_cast<size_t>(info.st_size);
  if (mapped.size_ == 0) return mapped;
  void* data = mmap(nullptr, mapped.size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus(errno, "cannot map " + path);
  mapped.data_ = static_cast<uint8_t*>(data);
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

}  // namespace lockstep
