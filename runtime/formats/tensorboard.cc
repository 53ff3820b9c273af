#include "runtime/formats/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace lockstep::formats {
namespace {

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  constexpr uint32_t kReversedPolynomial = 0x82f63b78u;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kReversedPolynomial : 0u);
    table[byte] = crc;
  }
  return table;
}

uint32_t MaskedCrc(const std::string& data) { return std::rotr(Crc32c(data.data(), data.size()), 15) + 0xa282ead8u; }

template <typename T>
std::string Raw(T value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

// Protobuf wire format: a key is field number * 8 + wire type.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}
void AppendKey(uint32_t field, WireType type, std::string& out) { AppendVarint(field * 8 + type, out); }
void AppendDouble(uint32_t field, double value, std::string& out) {
  AppendKey(field, kFixed64, out);
  out += Raw(value);
}
void AppendFloat(uint32_t field, float value, std::string& out) {
  AppendKey(field, kFixed32, out);
  out += Raw(value);
}
void AppendBytes(uint32_t field, const std::string& value, std::string& out) {
  AppendKey(field, kBytes, out);
  AppendVarint(value.size(), out);
  out += value;
}

std::string HostName() {
  char name[256] = "host";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

uint32_t Crc32c(const void* data, size_t num_bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  const auto* bytes = static_cast<const uint8_t*>(data);
  uint32_t crc = ~0u;
  for (size_t i = 0; i < num_bytes; ++i) crc = (crc >> 8) ^ kTable[(crc ^ bytes[i]) & 0xffu];
  return ~crc;
}

absl::StatusOr<EventFileWriter> EventFileWriter::Create(const std::string& folder, double wall_time) {
  RETURN_IF_ERROR(MakeDirs(folder));
  EventFileWriter writer;
  for (int number = 0; writer.fd_ < 0; ++number) {  // a second writer of the same second takes the next number
    writer.path_ = absl::StrCat(folder, "/events.out.tfevents.", static_cast<int64_t>(wall_time), ".", HostName(), ".",
                                getpid(), ".", number);
    writer.fd_ = open(writer.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (writer.fd_ < 0 && errno != EEXIST) return ErrnoStatus(errno, "cannot create " + writer.path_);
  }
  std::string event;
  AppendDouble(1, wall_time, event);
  AppendBytes(3, "brain.Event:2", event);
  RETURN_IF_ERROR(writer.WriteRecord(event));
  return writer;
}

EventFileWriter::EventFileWriter(EventFileWriter&& other) noexcept { *this = std::move(other); }
EventFileWriter& EventFileWriter::operator=(EventFileWriter&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}
EventFileWriter::~EventFileWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status EventFileWriter::WriteScalars(double wall_time, int64_t step,
                                           const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string entry;
    AppendBytes(1, tag, entry);
    AppendFloat(2, static_cast<float>(value), entry);
    AppendBytes(1, entry, summary);
  }
  std::string event;
  AppendDouble(1, wall_time, event);
  AppendKey(2, kVarint, event);
  AppendVarint(static_cast<uint64_t>(step), event);
  AppendBytes(5, summary, event);
  return WriteRecord(event);
}

absl::Status EventFileWriter::WriteRecord(const std::string& event) {
  const std::string length = Raw(static_cast<uint64_t>(event.size()));
  const std::string record = absl::StrCat(length, Raw(MaskedCrc(length)), event, Raw(MaskedCrc(event)));
  return AppendRecord(fd_, record.data(), record.size(), path_);
}

}  // namespace lockstep::formats
