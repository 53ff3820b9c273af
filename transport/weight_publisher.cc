#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "transport/private_dir.h"
#include "transport/weight_channel.h"
#include "transport/weight_mapping.h"

namespace lockstep::transport {
namespace {

absl::StatusOr<SharedMemory> MakePinPage() {
  ASSIGN_OR_RETURN(SharedMemory memory,
                   SharedMemory::Create("lockstep-pins", sizeof(PinPage), SharedMemory::Writers::kAll));
  new (memory.data()) PinPage();
  return memory;
}

absl::StatusOr<UniqueFd> Listen(const std::string& path) {
  RETURN_IF_ERROR(CheckSocketPath(path));
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "making a socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(socket.get(), 64) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listening for readers of weights at ", path));
  }
  return socket;
}

}  // namespace

absl::Status WeightChannelOptions::Validate() const {
  if (slot_bytes == 0) return absl::InvalidArgumentError("slot_bytes is 0: a slot must hold the packed weights");
  if (num_slots < 2 || num_slots > kMaxWeightSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_slots is ", num_slots, ": it must be from 2 to ", kMaxWeightSlots));
  }
  return socket_path.empty() ? absl::OkStatus() : CheckSocketPath(socket_path);
}

struct WeightPublisher::Impl {
  // A reader in another process.
  struct Remote {
    UniqueFd socket;
    SharedMemory pins;
  };

  WeightChannelOptions options;
  std::shared_ptr<ChannelMemory> memory;
  UniqueFd listener, stop;
  std::thread server;

  // Of the publishing thread alone.
  uint64_t num_publications = 0;
  int current_slot = -1;
  int writing_slot = -1;
  int64_t last_number = INT64_MIN;

  mutable std::mutex mutex;  // guards all below
  std::list<Remote> remotes;
  std::vector<std::weak_ptr<WeightMapping>> locals;

  ~Impl() {
    if (server.joinable()) {
      const uint64_t one = 1;
      CHECK_EQ(write(stop.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
      server.join();
    }
    if (listener.valid()) unlink(options.socket_path.c_str());
    if (memory != nullptr) memory->publisher_gone.store(true);
  }

  absl::Status Start() {
    memory = std::make_shared<ChannelMemory>();
    ASSIGN_OR_RETURN(memory->control_memory, SharedMemory::Create("lockstep-weights", sizeof(ControlPage),
                                                                  SharedMemory::Writers::kCreatorOnly));
    new (memory->control_memory.data()) ControlPage();
    for (int slot = 0; slot < options.num_slots; ++slot) {
      ASSIGN_OR_RETURN(SharedMemory buffer,
                       SharedMemory::Create(absl::StrCat("lockstep-weights-", slot), options.slot_bytes,
                                            SharedMemory::Writers::kCreatorOnly));
      memory->slots.push_back(std::move(buffer));
    }
    if (options.socket_path.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(listener, Listen(options.socket_path));
    stop = UniqueFd(eventfd(0, EFD_CLOEXEC));
    if (!stop.valid()) return ErrnoStatus(errno, "making an eventfd");
    server = std::thread([this] { Serve(); });
    return absl::OkStatus();
  }

  // ---- The serving thread: readers come and go ----

  void Serve() {
    while (true) {
      std::vector<pollfd> fds = {{stop.get(), POLLIN, 0}, {listener.get(), POLLIN, 0}};
      {
        const std::lock_guard<std::mutex> lock(mutex);
        for (const Remote& remote : remotes) fds.push_back({remote.socket.get(), POLLIN, 0});
      }
      if (poll(fds.data(), fds.size(), -1) < 0) continue;  // EINTR
      if (fds[0].revents != 0) return;
      // A reader never speaks: readable means gone (or a stranger to the protocol, who is let go too).
      for (size_t i = 2; i < fds.size(); ++i) {
        if (fds[i].revents != 0) Drop(fds[i].fd);
      }
      if (fds[1].revents != 0) {
        if (const absl::Status accepted = Accept(); !accepted.ok()) {
          LogWarning(absl::StrCat("a reader of weights was turned away: ", accepted.ToString()));
        }
      }
    }
  }

  void Drop(int fd) {
    const std::lock_guard<std::mutex> lock(mutex);
    remotes.remove_if([fd](const Remote& remote) { return remote.socket.get() == fd; });
  }

  absl::Status Accept() {
    UniqueFd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return absl::OkStatus();
      const absl::Status status = ErrnoStatus(errno, "accepting a connection");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // out of descriptors: do not spin on it
      return status;
    }
    RETURN_IF_ERROR(CheckPeerUser(socket.get()));
    ASSIGN_OR_RETURN(SharedMemory pins, MakePinPage());
    WeightGreeting greeting;
    greeting.num_slots = static_cast<uint32_t>(memory->slots.size());
    greeting.slot_bytes = options.slot_bytes;
    std::vector<int> fds = {memory->control_memory.fd(), pins.fd()};
    for (const SharedMemory& slot : memory->slots) fds.push_back(slot.fd());
    // Known before it is greeted: from the greeting on it may pin.
    const int fd = socket.get();
    {
      const std::lock_guard<std::mutex> lock(mutex);
      remotes.push_back({std::move(socket), std::move(pins)});
    }
    const absl::Status greeted = SendGreeting(fd, greeting, fds);
    if (!greeted.ok()) Drop(fd);
    return greeted;
  }

  // ---- The publishing thread ----

  int64_t NumPins(int slot) const {
    const std::lock_guard<std::mutex> lock(mutex);
    int64_t num_pins = 0;
    for (const Remote& remote : remotes) {
      num_pins += reinterpret_cast<const PinPage*>(remote.pins.data())->pins[slot].load();
    }
    for (const auto& local : locals) {
      if (const auto mapping = local.lock()) num_pins += mapping->pins().pins[slot].load();
    }
    return num_pins;
  }

  // A slot that nobody needs, or -1.
  int FindFreeSlot() const {
    for (int i = 1; i <= options.num_slots; ++i) {
      const int slot = (std::max(current_slot, 0) + i) % options.num_slots;
      if (slot != current_slot && NumPins(slot) == 0) return slot;
    }
    return -1;
  }
};

WeightPublisher::WeightPublisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WeightPublisher::~WeightPublisher() = default;

absl::StatusOr<std::unique_ptr<WeightPublisher>> WeightPublisher::Create(const WeightChannelOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<WeightPublisher>(new WeightPublisher(std::move(impl)));
}

size_t WeightPublisher::slot_bytes() const { return impl_->options.slot_bytes; }

absl::StatusOr<WeightPublisher::Slot> WeightPublisher::BeginWrite(Deadline deadline) {
  BackOff back_off(deadline);
  while (true) {
    if (const int slot = impl_->FindFreeSlot(); slot >= 0) {
      impl_->writing_slot = slot;
      const SharedMemory& memory = impl_->memory->slots[static_cast<size_t>(slot)];
      return Slot{slot, {memory.data(), memory.size()}};
    }
    if (!back_off.Sleep()) break;
  }
  int64_t num_pins = 0;
  for (int slot = 0; slot < impl_->options.num_slots; ++slot) {
    if (slot != impl_->current_slot) num_pins += impl_->NumPins(slot);
  }
  return absl::DeadlineExceededError(
      absl::StrCat("all weight slots but the current one are still read: ", num_pins, " leases are held"));
}

WeightPublisher::Publication WeightPublisher::Publish(const WeightVersion& version) {
  CHECK_GE(impl_->writing_slot, 0);
  CHECK_GT(version.number, impl_->last_number);
  const int slot = std::exchange(impl_->writing_slot, -1);
  ControlPage& control = impl_->memory->control();
  const auto start = std::chrono::steady_clock::now();
  control.slots[slot].number.store(version.number);
  control.slots[slot].hash.store(version.hash);
  control.current.store(++impl_->num_publications << 8 | static_cast<uint64_t>(slot));
  const std::chrono::duration<double, std::micro> flip = std::chrono::steady_clock::now() - start;
  impl_->current_slot = slot;
  impl_->last_number = version.number;
  return {version, slot, flip.count()};
}

std::unique_ptr<WeightReader> WeightPublisher::LocalReader() {
  auto mapping = std::make_shared<WeightMapping>();
  mapping->memory = impl_->memory;
  absl::StatusOr<SharedMemory> pins = MakePinPage();
  CHECK(pins.ok());  // one page
  mapping->pin_memory = *std::move(pins);
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    std::erase_if(impl_->locals, [](const auto& local) { return local.expired(); });
    impl_->locals.push_back(mapping);
  }
  return std::unique_ptr<WeightReader>(new WeightReader(std::move(mapping)));
}

int WeightPublisher::num_readers() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  int count = static_cast<int>(impl_->remotes.size());
  for (const auto& local : impl_->locals) count += local.expired() ? 0 : 1;
  return count;
}

}  // namespace lockstep::transport
