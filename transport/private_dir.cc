#include "transport/private_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

// A process that waits for this one to end, however it ends, and then removes the folder. It is a shell in a session of
// its own (launchers kill whole process groups) that holds nothing but the reading end of a pipe, which ends with us.
struct Guard {
  pid_t pid = -1;
  int pipe = -1;
};

Guard StartGuard(const std::string& path) {
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  posix_spawn_file_actions_adddup2(&actions, pipe[0], STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  std::string command = "trap '' HUP INT TERM USR1; read -r line; rm -rf -- \"$0\"";
  std::string shell = "/bin/sh", flag = "-c", argument = path;
  char* const argv[] = {shell.data(), flag.data(), command.data(), argument.data(), nullptr};
  char* const environment[] = {nullptr};
  Guard guard;
  if (posix_spawn(&guard.pid, "/bin/sh", &actions, &attributes, argv, environment) != 0) guard.pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(pipe[0]);
  if (guard.pid < 0) {
    close(pipe[1]);
    return {};
  }
  guard.pipe = pipe[1];
  return guard;
}

}  // namespace

absl::StatusOr<PrivateDir> PrivateDir::Create() {
  absl::Status last = absl::NotFoundError("no folder for sockets");
  for (const std::string& parent : {Parent("XDG_RUNTIME_DIR"), Parent("TMPDIR"), std::string("/tmp")}) {
    std::string path = parent + "/lockstep-XXXXXX";
    if (parent.empty() || path.size() > kMaxFolderLength) continue;
    if (mkdtemp(path.data()) != nullptr) {  // mode 0700
      PrivateDir dir(path);
      const Guard guard = StartGuard(path);  // without one, a folder is left behind where this process is killed
      dir.guard_pid_ = guard.pid;
      dir.guard_pipe_ = guard.pipe;
      return dir;
    }
    last = ErrnoStatus(errno, absl::StrCat("making a private folder in ", parent));
  }
  return last;
}

PrivateDir::PrivateDir(PrivateDir&& other) noexcept
    : path_(std::exchange(other.path_, "")),
      guard_pid_(std::exchange(other.guard_pid_, -1)),
      guard_pipe_(std::exchange(other.guard_pipe_, -1)) {}

PrivateDir& PrivateDir::operator=(PrivateDir&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(guard_pid_, other.guard_pid_);
  std::swap(guard_pipe_, other.guard_pipe_);
  return *this;
}

PrivateDir::~PrivateDir() {
  if (path_.empty()) return;
  if (DIR* dir = opendir(path_.c_str())) {
    while (const dirent* entry = readdir(dir)) unlink(absl::StrCat(path_, "/", entry->d_name).c_str());
    closedir(dir);
  }
  rmdir(path_.c_str());
  if (guard_pid_ < 0) return;
  close(guard_pipe_);
  while (waitpid(guard_pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
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
