#include "transport/weight_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1; Debian 12's headers have it
#endif

namespace lockstep::transport {
namespace {

// The control page, the pin page and the slots.
constexpr size_t kMaxGreetingFds = 2 + kMaxWeightSlots;

absl::StatusOr<uint8_t*> MapWhole(int fd, size_t num_bytes, bool writable) {
  void* data =
      mmap(nullptr, num_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (data == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("mapping ", num_bytes, " bytes of shared memory"));
  return static_cast<uint8_t*>(data);
}

// The number a file begins with; `otherwise` if it cannot be read or says "max".
uint64_t NumberIn(const char* path, uint64_t otherwise) {
  uint64_t number = 0;
  std::ifstream file(path);
  return file >> number ? number : otherwise;
}

// What could be had without swapping, by the machine's account and the container's; a file absent sets no bound.
uint64_t AvailableBytes() {
  constexpr uint64_t kNoBound = UINT64_MAX;
  uint64_t available = kNoBound;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    unsigned long long kilobytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kilobytes) == 1) available = kilobytes * 1024;
  }
  const uint64_t limit = NumberIn("/sys/fs/cgroup/memory.max", kNoBound);
  const uint64_t used = NumberIn("/sys/fs/cgroup/memory.current", 0);
  if (limit != kNoBound) available = std::min(available, limit - std::min(limit, used));
  return available;
}

}  // namespace

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<SharedMemory> SharedMemory::Create(const std::string& name, size_t num_bytes, Writers writers) {
  // The kernel would not refuse: it would go on until it has to kill somebody.
  if (const uint64_t available = AvailableBytes(); num_bytes > available) {
    return absl::ResourceExhaustedError(absl::StrCat("no ", num_bytes, " bytes of shared memory for ", name, ": only ",
                                                     available, " bytes of memory are available"));
  }
  SharedMemory memory;
  memory.fd_ = UniqueFd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.fd_.valid()) return ErrnoStatus(errno, absl::StrCat("making shared memory for ", name));
  // Reserves the pages now: writing to a mapping that cannot be backed would be a SIGBUS.
  if (const int error_number = posix_fallocate(memory.fd(), 0, static_cast<off_t>(num_bytes)); error_number != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no ", num_bytes, " bytes of shared memory for ", name, ": ", strerror(error_number)));
  }
  ASSIGN_OR_RETURN(memory.data_, MapWhole(memory.fd(), num_bytes, /*writable=*/true));
  memory.size_ = num_bytes;
  // Fewer TLB misses where the system allows it for shared memory; no harm elsewhere.
  madvise(memory.data_, num_bytes, MADV_HUGEPAGE);
  const int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;
  const bool only_us = writers == Writers::kCreatorOnly;
  if (only_us && fcntl(memory.fd(), F_ADD_SEALS, size_seals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0) return memory;
  if (fcntl(memory.fd(), F_ADD_SEALS, size_seals | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, absl::StrCat("sealing shared memory for ", name));
  }
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::Map(UniqueFd fd, size_t num_bytes, bool writable) {
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "looking at shared memory");
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || static_cast<uint64_t>(info.st_size) != num_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory of ", info.st_size, " bytes where ", num_bytes, " sealed ones were promised"));
  }
  SharedMemory memory;
  ASSIGN_OR_RETURN(memory.data_, MapWhole(fd.get(), num_bytes, writable));
  memory.size_ = num_bytes;
  memory.fd_ = std::move(fd);
  return memory;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

absl::Status SendGreeting(int socket, const WeightGreeting& greeting, const std::vector<int>& fds) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxGreetingFds * sizeof(int))] = {};
  iovec part = {const_cast<WeightGreeting*>(&greeting), sizeof greeting};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  ssize_t sent = 0;
  while ((sent = sendmsg(socket, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  if (sent != sizeof greeting) return ErrnoStatus(errno, "greeting a reader of weights");
  return absl::OkStatus();
}

absl::StatusOr<std::pair<WeightGreeting, std::vector<UniqueFd>>> ReceiveGreeting(int socket, Deadline deadline) {
  if (!PollIn(socket, deadline)) return absl::DeadlineExceededError("the publisher of weights did not answer in time");
  WeightGreeting greeting;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxGreetingFds * sizeof(int))] = {};
  iovec part = {&greeting, sizeof greeting};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received = 0;
  while ((received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (received < 0) return ErrnoStatus(errno, "hearing the publisher of weights");
  std::vector<UniqueFd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  if (received == 0) return absl::UnavailableError("the publisher of weights closed the connection");
  const bool known = received == sizeof greeting && greeting.magic == WeightGreeting::kMagic && greeting.protocol == 1;
  if (!known || greeting.num_slots < 1 || greeting.num_slots > kMaxWeightSlots ||
      fds.size() != greeting.num_slots + 2 || (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
    return absl::FailedPreconditionError(
        "the publisher of weights speaks another protocol: start all ranks from one build");
  }
  return std::make_pair(greeting, std::move(fds));
}

absl::Status CheckPeerUser(int socket) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return ErrnoStatus(errno, "asking who the peer is");
  if (peer.uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("the peer runs as user ", peer.uid, ", not ", geteuid()));
  }
  return absl::OkStatus();
}

bool PollIn(int fd, Deadline deadline) {
  while (true) {
    int timeout_ms = -1;
    if (deadline != Deadline::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX));
    }
    pollfd entry = {fd, POLLIN, 0};
    const int ready = poll(&entry, 1, timeout_ms);
    if (ready > 0) return true;
    if (ready == 0 && std::chrono::steady_clock::now() >= deadline) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace lockstep::transport
