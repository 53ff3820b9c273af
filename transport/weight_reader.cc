#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "transport/private_dir.h"
#include "transport/weight_channel.h"
#include "transport/weight_mapping.h"

namespace lockstep::transport {
namespace {

absl::StatusOr<UniqueFd> ConnectSocket(const std::string& path, Deadline deadline) {
  RETURN_IF_ERROR(CheckSocketPath(path));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  BackOff back_off(deadline);
  while (true) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket.valid()) return ErrnoStatus(errno, "making a socket");
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
    const int error_number = errno;
    const bool not_yet =
        error_number == ENOENT || error_number == ECONNREFUSED || error_number == EINTR || error_number == EAGAIN;
    if (!not_yet) return ErrnoStatus(error_number, absl::StrCat("connecting to ", path));
    if (!back_off.Sleep()) {
      return absl::UnavailableError(
          absl::StrCat("nobody publishes weights at ", path, " (", strerror(error_number), ")"));
    }
  }
}

}  // namespace

// ---- WeightLease ----

WeightLease::~WeightLease() {
  if (owner_ != nullptr) owner_->pins().pins[slot_].fetch_sub(1);
}

WeightLease::WeightLease(WeightLease&& other) noexcept
    : owner_(std::move(other.owner_)),
      version_(other.version_),
      bytes_(std::exchange(other.bytes_, {})),
      slot_(std::exchange(other.slot_, -1)) {}

WeightLease& WeightLease::operator=(WeightLease&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(version_, other.version_);
  std::swap(bytes_, other.bytes_);
  std::swap(slot_, other.slot_);
  if (&other != this) WeightLease(std::move(other));  // what this held is let go now, not when `other` ends
  return *this;
}

// ---- WeightReader ----

WeightReader::WeightReader(std::shared_ptr<WeightMapping> mapping) : mapping_(std::move(mapping)) {}
WeightReader::~WeightReader() = default;

size_t WeightReader::slot_bytes() const { return mapping_->memory->slots[0].size(); }

absl::StatusOr<std::unique_ptr<WeightReader>> WeightReader::Connect(const std::string& socket_path, Deadline deadline) {
  auto mapping = std::make_shared<WeightMapping>();
  ASSIGN_OR_RETURN(mapping->socket, ConnectSocket(socket_path, deadline));
  RETURN_IF_ERROR(CheckPeerUser(mapping->socket.get()));
  ASSIGN_OR_RETURN(auto greeting, ReceiveGreeting(mapping->socket.get(), deadline));
  auto& [sizes, fds] = greeting;
  mapping->memory = std::make_shared<ChannelMemory>();
  ASSIGN_OR_RETURN(mapping->memory->control_memory,
                   SharedMemory::Map(std::move(fds[0]), sizeof(ControlPage), /*writable=*/false));
  ASSIGN_OR_RETURN(mapping->pin_memory, SharedMemory::Map(std::move(fds[1]), sizeof(PinPage), /*writable=*/true));
  for (uint32_t slot = 0; slot < sizes.num_slots; ++slot) {
    ASSIGN_OR_RETURN(SharedMemory memory,
                     SharedMemory::Map(std::move(fds[2 + slot]), sizes.slot_bytes, /*writable=*/false));
    mapping->memory->slots.push_back(std::move(memory));
  }
  return std::unique_ptr<WeightReader>(new WeightReader(std::move(mapping)));
}

absl::StatusOr<WeightLease> WeightReader::Current() {
  const ControlPage& control = mapping_->memory->control();
  PinPage& pins = mapping_->pins();
  while (true) {
    const uint64_t current = control.current.load();
    if (current == 0) return absl::UnavailableError("no weights have been published yet");
    const size_t slot = current & 0xff;
    if (slot >= mapping_->memory->slots.size())
      return absl::DataLossError("the control page of the weights is damaged");
    pins.pins[slot].fetch_add(1);
    if (control.current.load() != current) {  // the slot may already be another version's
      pins.pins[slot].fetch_sub(1);
      continue;
    }
    WeightLease lease;
    lease.owner_ = mapping_;
    lease.slot_ = static_cast<int>(slot);
    lease.version_ = {control.slots[slot].number.load(), control.slots[slot].hash.load()};
    const SharedMemory& memory = mapping_->memory->slots[slot];
    lease.bytes_ = {memory.data(), memory.size()};
    return lease;
  }
}

absl::StatusOr<WeightLease> WeightReader::WaitFor(int64_t number, Deadline deadline) {
  BackOff back_off(deadline);
  while (true) {
    absl::StatusOr<WeightLease> lease = Current();
    if (!lease.ok() && !absl::IsUnavailable(lease.status())) return lease;
    if (lease.ok() && lease->version().number >= number) return lease;
    if (!PublisherAlive()) return absl::UnavailableError("the publisher of weights has gone");
    if (!back_off.Sleep()) {
      return absl::DeadlineExceededError(
          absl::StrCat("weights of version ", number, " were not published in time: ",
                       lease.ok() ? absl::StrCat("current is ", lease->version().number) : "there are none yet"));
    }
  }
}

bool WeightReader::PublisherAlive() {
  if (!mapping_->socket.valid()) return !mapping_->memory->publisher_gone.load();
  char byte;
  const ssize_t n = recv(mapping_->socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace lockstep::transport
