#include "runtime/formats/tensorboard.h"

#include <bit>
#include <cstring>
#include <map>

#include "runtime/base/file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// A protobuf message as field number -> raw values, enough for Event and Summary.
struct Field {
  uint64_t number = 0;  // varints and fixed widths
  std::string bytes;    // length-delimited
};
using Message = std::multimap<uint32_t, Field>;

uint64_t TakeVarint(const std::string& data, size_t* at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<uint8_t>(data.at((*at)++));
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

Message ParseMessage(const std::string& data) {
  Message message;
  for (size_t at = 0; at < data.size();) {
    const uint64_t key = TakeVarint(data, &at);
    Field field;
    switch (key & 7) {
      case 0:
        field.number = TakeVarint(data, &at);
        break;
      case 1:
        std::memcpy(&field.number, data.substr(at).data(), 8);
        at += 8;
        break;
      case 2: {
        const uint64_t size = TakeVarint(data, &at);
        field.bytes = data.substr(at, size);
        at += size;
        break;
      }
      case 5:
        std::memcpy(&field.number, data.substr(at).data(), 4);
        at += 4;
        break;
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
        return message;
    }
    message.emplace(static_cast<uint32_t>(key >> 3), field);
  }
  return message;
}

uint32_t Unmask(uint32_t masked) { return std::rotl(masked - 0xa282ead8u, 15); }

std::vector<std::string> ReadRecords(const std::string& file) {
  std::vector<std::string> records;
  for (size_t at = 0; at < file.size();) {
    uint64_t length = 0;
    uint32_t crc = 0;
    std::memcpy(&length, file.data() + at, 8);
    std::memcpy(&crc, file.data() + at + 8, 4);
    EXPECT_EQ(Unmask(crc), Crc32c(file.data() + at, 8));
    records.push_back(file.substr(at + 12, length));
    std::memcpy(&crc, file.data() + at + 12 + length, 4);
    EXPECT_EQ(Unmask(crc), Crc32c(records.back().data(), length));
    at += 16 + length;
    EXPECT_LE(at, file.size());
  }
  return records;
}

// Test vectors of RFC 3720 B.4 and the usual check value.
TEST(Crc32c, KnowsThePublishedValues) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43u);
}

TEST(EventFileWriter, WritesWhatAReaderExpects) {
  const testing::TempDir dir;
  ASSERT_OK_AND_ASSIGN(EventFileWriter writer, EventFileWriter::Create(dir.File("tb"), 1700000000.5));
  EXPECT_THAT(writer.path(), HasSubstr("/tb/events.out.tfevents.1700000000."));
  ASSERT_OK(writer.WriteScalars(1700000001.25, 300, {{"train/reward", 0.5}, {"train/kl", -2.0}}));
  const std::vector<std::string> records = ReadRecords(*ReadFile(writer.path()));
  ASSERT_EQ(records.size(), 2u);
  const Message first = ParseMessage(records[0]);
  EXPECT_EQ(std::bit_cast<double>(first.find(1)->second.number), 1700000000.5);
  EXPECT_EQ(first.find(3)->second.bytes, "brain.Event:2");
  const Message event = ParseMessage(records[1]);
  EXPECT_EQ(std::bit_cast<double>(event.find(1)->second.number), 1700000001.25);
  EXPECT_EQ(event.find(2)->second.number, 300u);
  std::vector<std::pair<std::string, float>> scalars;
  for (const auto& [number, field] : ParseMessage(event.find(5)->second.bytes)) {
    EXPECT_EQ(number, 1u);
    const Message value = ParseMessage(field.bytes);
    scalars.emplace_back(value.find(1)->second.bytes,
                         std::bit_cast<float>(static_cast<uint32_t>(value.find(2)->second.number)));
  }
  EXPECT_THAT(scalars, ElementsAre(Pair("train/reward", 0.5f), Pair("train/kl", -2.0f)));
}

TEST(EventFileWriter, TwoWritersOfOneSecondDoNotShareAFile) {
  const testing::TempDir dir;
  ASSERT_OK_AND_ASSIGN(EventFileWriter a, EventFileWriter::Create(dir.path(), 5));
  ASSERT_OK_AND_ASSIGN(EventFileWriter b, EventFileWriter::Create(dir.path(), 5));
  EXPECT_NE(a.path(), b.path());
}

}  // namespace
}  // namespace lockstep::formats
