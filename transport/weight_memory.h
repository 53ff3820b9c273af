// The memory of a weight channel: sealed memfds, their mappings, the control page, the pages of pins and how their
// descriptors travel. Internal to the weight channel; the protocol stands in weight_channel.h.
#ifndef LOCKSTEP_TRANSPORT_WEIGHT_MEMORY_H_
#define LOCKSTEP_TRANSPORT_WEIGHT_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/collective.h"
#include "transport/weight_channel.h"

namespace lockstep::transport {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd();
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A memfd mapped whole into this process.
class SharedMemory {
 public:
  enum class Writers { kCreatorOnly, kAll };

  // Reserved, faulted in, zeroed, sealed against growing and shrinking; with kCreatorOnly also against new writable
  // mappings, where the kernel (5.1) can. ResourceExhausted if memory is short.
  static absl::StatusOr<SharedMemory> Create(const std::string& name, size_t num_bytes, Writers writers);
  // Maps what another process created. FailedPrecondition if it is not of that size or could shrink under us.
  static absl::StatusOr<SharedMemory> Map(UniqueFd fd, size_t num_bytes, bool writable);

  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  uint8_t* data() const { return data_; }  // [size()], page-aligned; writable only where it was mapped so
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Written by the publisher, read by all.
struct ControlPage {
  // publication << 8 | slot; 0 before the first (publications count from 1). Versions never go back.
  std::atomic<uint64_t> current;
  struct SlotInfo {
    std::atomic<int64_t> number;
    std::atomic<uint64_t> hash;
  };
  SlotInfo slots[kMaxWeightSlots];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Written by one reader, read by the publisher: how many leases of each slot the reader holds.
struct PinPage {
  std::atomic<uint32_t> pins[kMaxWeightSlots];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// First and only message of a connection, publisher to reader, with the descriptors of the control page, the reader's
// pin page and the slots.
struct WeightGreeting {
  uint64_t magic = kMagic;
  uint32_t protocol = 1;
  uint32_t num_slots = 0;
  uint64_t slot_bytes = 0;
  static constexpr uint64_t kMagic = 0x4c6b737457676874;  // "LkstWght"
};

absl::Status SendGreeting(int socket, const WeightGreeting& greeting, const std::vector<int>& fds);
// Unavailable if the peer closed; waits up to the deadline.
absl::StatusOr<std::pair<WeightGreeting, std::vector<UniqueFd>>> ReceiveGreeting(int socket, Deadline deadline);

// PermissionDenied unless the socket's peer runs as the same user.
absl::Status CheckPeerUser(int socket);

// Waits until `fd` is readable (or the other end closed); false at the deadline.
bool PollIn(int fd, Deadline deadline);

}  // namespace lockstep::transport

#endif  // LOCKSTEP_TRANSPORT_WEIGHT_MEMORY_H_
