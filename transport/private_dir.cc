#include "transport/private_dir.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace lockstep::transport {
namespace {

// sockaddr_un holds 108 bytes, the last of them 0.
constexpr size_t kMaxSocketPath = 107;
constexpr size_t kMaxFolderLength = kMaxSocketPath - 8;  // the longest socket name here is "/weights"

std::string Parent(const char* variable) {
  const char* value = getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

absl::StatusOr<PrivateDir> PrivateDir::Create() {
  absl::Status last = absl::NotFoundError("no folder for sockets");
  for (const std::string& parent : {Parent("XDG_RUNTIME_DIR"), Parent("TMPDIR"), std::string("/tmp")}) {
    std::string path = parent + "/lockstep-XXXXXX";
    if (parent.empty() || path.size() > kMaxFolderLength) continue;
    if (mkdtemp(path.data()) != nullptr) return PrivateDir(path);  // mode 0700
    last = ErrnoStatus(errno, absl::StrCat("making a private folder in ", parent));
  }
  return last;
}

PrivateDir::PrivateDir(PrivateDir&& other) noexcept : path_(std::exchange(other.path_, "")) {}

PrivateDir& PrivateDir::operator=(PrivateDir&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

PrivateDir::~PrivateDir() {
  if (path_.empty()) return;
  if (DIR* dir = opendir(path_.c_str())) {
    while (const dirent* entry = readdir(dir)) unlink(absl::StrCat(path_, "/", entry->d_name).c_str());
    closedir(dir);
  }
  rmdir(path_.c_str());
}

absl::Status CheckSocketPath(const std::string& socket_path) {
  if (!socket_path.starts_with("/") || socket_path.size() > kMaxSocketPath) {
    return absl::InvalidArgumentError(absl::StrCat("the socket path '", socket_path, "' must be absolute and at most ",
                                                   kMaxSocketPath, " bytes long"));
  }
  const std::string folder = socket_path.substr(0, socket_path.rfind('/') + 1);
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("the socket's folder ", folder));
  if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("the socket's folder ", folder, " must belong to this user alone (chmod 700)"));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::transport
