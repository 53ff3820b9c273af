// What leases, readers and the publisher share. Internal to the weight channel.
#ifndef LOCKSTEP_TRANSPORT_WEIGHT_MAPPING_H_
#define LOCKSTEP_TRANSPORT_WEIGHT_MAPPING_H_

#include <atomic>
#include <memory>
#include <vector>

#include "transport/weight_memory.h"

namespace lockstep::transport {

// The channel as this process maps it. Lives until the last lease of this process is gone.
struct ChannelMemory {
  SharedMemory control_memory;
  std::vector<SharedMemory> slots;
  std::atomic<bool> publisher_gone{false};  // for readers in the publisher's own process
  ControlPage& control() const { return *reinterpret_cast<ControlPage*>(control_memory.data()); }
};

// One reader: the channel, its own pins, and its connection, which closes when the reader and all its leases are gone.
struct WeightMapping {
  std::shared_ptr<ChannelMemory> memory;
  SharedMemory pin_memory;
  UniqueFd socket;  // not valid for a reader in the publisher's own process
  PinPage& pins() const { return *reinterpret_cast<PinPage*>(pin_memory.data()); }
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_TRANSPORT_WEIGHT_MAPPING_H_
