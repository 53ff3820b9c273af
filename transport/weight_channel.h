// Weights in shared memory: published once per node in the layout that the kernels read, mapped read-only by every
// reader.
//
//   publisher (learner)                                        reader (rollout child)
//   auto weights = *WeightPublisher::Create(options);          auto reader = *WeightReader::Connect(path, deadline);
//   auto slot = *weights->BeginWrite(deadline);                auto lease = *reader->Current();
//   pack(slot.bytes);                                          lease.version(), lease.bytes()
//   weights->Publish(version);    // the hand-off: a flip      // the slot stays as it is while any lease lives
//
// The publisher owns `num_slots` buffers (2: double buffering). One holds the current version, the others are free to
// write once nobody reads them. Publish stores one word in a shared control page.
//
// Protocol (hazard pointers with counts). The control page holds `current` = (publication << 8 | slot) and per slot its
// version. Each reader has a page of its own with a pin counter per slot, which it alone writes:
//   reader:    s = current; ++pins[s]; if current is still s, the slot is held; else --pins[s] and again
//   publisher: BeginWrite picks a slot that is not current and waits until all readers' pins of it are 0
// All of these are sequentially consistent, so either the reader sees the newer `current` or the publisher sees the
// pin. Invariants: 1. bytes and version of a pinned or current slot never change; 2. versions that one reader sees
// never go back; 3. a reader that dies holds nothing: its connection closes and its page is dropped.
//
// Memory: memfd buffers sealed against growing and shrinking, faulted in at creation (ResourceExhausted there, no
// SIGBUS later), sealed against writing through any mapping but the publisher's where the kernel can. Descriptors are
// handed over a UNIX socket (SCM_RIGHTS) to processes of the same user only.
#ifndef LOCKSTEP_TRANSPORT_WEIGHT_CHANNEL_H_
#define LOCKSTEP_TRANSPORT_WEIGHT_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/data/weight_version.h"
#include "transport/collective.h"

namespace lockstep::transport {

inline constexpr int kMaxWeightSlots = 8;

struct WeightChannelOptions {
  size_t slot_bytes = 0;
  int num_slots = 2;
  // Where readers connect: a path in a folder of mode 0700 (private_dir.h), at most 107 bytes. "" serves readers of
  // this process only (WeightPublisher::LocalReader).
  std::string socket_path;
  absl::Status Validate() const;
};

struct WeightMapping;  // a reader's view: control page, pins, slots

// What a reader holds: `bytes` stay as they are until the lease is gone. Movable. May outlive its WeightReader and be
// dropped by any thread.
class WeightLease {
 public:
  WeightLease() = default;
  ~WeightLease();
  WeightLease(WeightLease&& other) noexcept;
  WeightLease& operator=(WeightLease&& other) noexcept;

  const WeightVersion& version() const { return version_; }
  absl::Span<const uint8_t> bytes() const { return bytes_; }  // [slot_bytes], page-aligned
  int slot() const { return slot_; }
  bool valid() const { return owner_ != nullptr; }

 private:
  friend class WeightReader;
  std::shared_ptr<WeightMapping> owner_;
  WeightVersion version_;
  absl::Span<const uint8_t> bytes_;
  int slot_ = -1;
};

// Thread-safe.
class WeightReader {
 public:
  // Waits until the publisher listens. Unavailable (no publisher by the deadline), PermissionDenied (it belongs to
  // another user), FailedPrecondition (it speaks another protocol).
  static absl::StatusOr<std::unique_ptr<WeightReader>> Connect(const std::string& socket_path, Deadline deadline);
  ~WeightReader();

  // Unavailable before the first publication. Never blocks.
  absl::StatusOr<WeightLease> Current();
  // Waits until the current version's number is at least `number`. DeadlineExceeded tells which one is current;
  // Unavailable if the publisher has gone.
  absl::StatusOr<WeightLease> WaitFor(int64_t number, Deadline deadline);
  bool PublisherAlive();
  size_t slot_bytes() const;

 private:
  friend class WeightPublisher;
  explicit WeightReader(std::shared_ptr<WeightMapping> mapping);
  std::shared_ptr<WeightMapping> mapping_;
};

// BeginWrite and Publish: one thread. Readers come and go on a thread of the publisher's own.
class WeightPublisher {
 public:
  static absl::StatusOr<std::unique_ptr<WeightPublisher>> Create(const WeightChannelOptions& options);
  ~WeightPublisher();

  struct Slot {
    int index = 0;
    absl::Span<uint8_t> bytes;  // [slot_bytes], page-aligned; what an older version left there
  };
  // Waits until a slot is neither current nor read. DeadlineExceeded says how many readers hold it.
  absl::StatusOr<Slot> BeginWrite(Deadline deadline);

  struct Publication {
    WeightVersion version;
    int slot = 0;
    double flip_us = 0;  // how long the hand-off took
  };
  // Makes the slot of the last BeginWrite current. CHECKs that there was one, and that version numbers grow.
  Publication Publish(const WeightVersion& version);

  // A reader in this process, with no socket between.
  std::unique_ptr<WeightReader> LocalReader();
  int num_readers() const;  // connected or local, at this moment
  size_t slot_bytes() const;

 private:
  struct Impl;
  explicit WeightPublisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_TRANSPORT_WEIGHT_CHANNEL_H_
