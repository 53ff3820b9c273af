// Writes scalars as a TensorBoard event file (TensorFlow's TFRecord framing around Event messages).
//
//   record = u64 length, u32 masked CRC of the length, data [length], u32 masked CRC of the data      (little-endian)
//   masked(crc) = rotate_right(crc, 15) + 0xa282ead8                                                   CRC-32C
//   data   = protobuf Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5 }
//            Summary { repeated Value { string tag = 1; float simple_value = 2 } value = 1 }
//
// The first record carries file_version "brain.Event:2". Each event is one write to the file: what WriteScalars
// returned OK for, a TensorBoard that watches the folder sees.
//
// Thread contract: one thread per object.
#ifndef LOCKSTEP_RUNTIME_FORMATS_TENSORBOARD_H_
#define LOCKSTEP_RUNTIME_FORMATS_TENSORBOARD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::formats {

// CRC-32C (Castagnoli; RFC 3720 appendix B.4), unmasked.
uint32_t Crc32c(const void* data, size_t num_bytes);

class EventFileWriter {
 public:
  // Creates `folder` and in it "events.out.tfevents.<seconds>.<host>.<pid>.<n>" (0600). wall_time: seconds since 1970.
  static absl::StatusOr<EventFileWriter> Create(const std::string& folder, double wall_time);
  EventFileWriter(EventFileWriter&& other) noexcept;
  EventFileWriter& operator=(EventFileWriter&& other) noexcept;
  ~EventFileWriter();

  // One event with all the values. Tags group by their part before '/'; values become float32.
  absl::Status WriteScalars(double wall_time, int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

  const std::string& path() const { return path_; }

 private:
  EventFileWriter() = default;
  absl::Status WriteRecord(const std::string& event);

  int fd_ = -1;
  std::string path_;
};

}  // namespace lockstep::formats

#endif  // LOCKSTEP_RUNTIME_FORMATS_TENSORBOARD_H_
