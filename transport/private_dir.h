// Folders for sockets that only this user may reach.
#ifndef LOCKSTEP_TRANSPORT_PRIVATE_DIR_H_
#define LOCKSTEP_TRANSPORT_PRIVATE_DIR_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::transport {

// A folder of mode 0700 that this process made, for sockets: short enough for their paths (at most 107 bytes with the
// socket's name). Lies in $XDG_RUNTIME_DIR, $TMPDIR or /tmp, whichever is first usable; removed with its files at the
// end; also where this process is killed, by a small shell that waits for that.
class PrivateDir {
 public:
  static absl::StatusOr<PrivateDir> Create();
  PrivateDir(PrivateDir&& other) noexcept;
  PrivateDir& operator=(PrivateDir&& other) noexcept;
  ~PrivateDir();

  const std::string& path() const { return path_; }
  std::string bus_endpoint() const { return "ipc://" + path_ + "/bus"; }
  std::string weights_socket() const { return path_ + "/weights"; }

 private:
  explicit PrivateDir(std::string path) : path_(std::move(path)) {}
  std::string path_;
  int guard_pid_ = -1;   // -1: none
  int guard_pipe_ = -1;  // its reading end is the guard's
};

// PermissionDenied unless the folder of `socket_path` belongs to this user alone (mode 0700); InvalidArgument if the
// path is relative or longer than 107 bytes.
absl::Status CheckSocketPath(const std::string& socket_path);

}  // namespace lockstep::transport

#endif  // LOCKSTEP_TRANSPORT_PRIVATE_DIR_H_
