#include "runtime/formats/json_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

namespace lockstep::formats {
namespace {

// Bytes of the UTF-8 sequence at `at`, 0 if it is malformed (Unicode 15, table 3-7).
size_t SequenceLength(const uint8_t* at, size_t left) {
  const uint8_t lead = at[0];
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (length > left) return 0;
  uint8_t low = 0x80;
  uint8_t high = 0xbf;
  if (lead == 0xe0) low = 0xa0;   // overlong
  if (lead == 0xed) high = 0x9f;  // surrogates
  if (lead == 0xf0) low = 0x90;   // overlong
  if (lead == 0xf4) high = 0x8f;  // above U+10FFFF
  if (at[1] < low || at[1] > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((at[i] & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

bool IsValidUtf8(const char* text, size_t num_bytes) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text);
  for (size_t at = 0; at < num_bytes;) {
    const size_t length = SequenceLength(bytes + at, num_bytes - at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

absl::StatusOr<Json> ParseJsonLine(const std::string& text, const std::string& where) {
  const auto bad = [&](const std::string& what) { return absl::InvalidArgumentError(absl::StrCat(where, ": ", what)); };
  if (text.find_first_not_of(" \t\r") == std::string::npos) return bad("the line is empty");
  if (text.compare(0, 3, "\xef\xbb\xbf") == 0) return bad("it begins with a byte order mark: save it as plain UTF-8");
  if (!IsValidUtf8(text.data(), text.size())) return bad("not valid UTF-8");
  absl::StatusOr<Json> value = ParseJson(text);
  if (!value.ok()) return AddContext(value.status(), where);
  if (!value->is_object()) return bad("not a JSON object");
  return value;
}

JsonLine::JsonLine() = default;
JsonLine::JsonLine(JsonLine&&) noexcept = default;
JsonLine& JsonLine::operator=(JsonLine&&) noexcept = default;
JsonLine::~JsonLine() = default;

absl::StatusOr<JsonLinesReader> JsonLinesReader::Open(const std::string& path) {
  JsonLinesReader reader;
  ASSIGN_OR_RETURN(reader.file_, MappedFile::Open(path));
  return reader;
}

absl::StatusOr<bool> JsonLinesReader::Next(JsonLine* line) {
  if (at_ >= file_.size()) return false;
  const char* begin = reinterpret_cast<const char*>(file_.data()) + at_;
  const size_t left = file_.size() - at_;
  const void* newline = std::memchr(begin, '\n', left);
  size_t length = newline == nullptr ? left : static_cast<size_t>(static_cast<const char*>(newline) - begin);
  line->number = ++number_;
  line->offset = static_cast<int64_t>(at_);
  at_ += newline == nullptr ? length : length + 1;
  if (length > 0 && begin[length - 1] == '\r') --length;
  ASSIGN_OR_RETURN(Json value, ParseJsonLine(std::string(begin, length), absl::StrCat(path(), ":", number_)));
  line->value = std::make_unique<Json>(std::move(value));
  return true;
}

void JsonLinesReader::Seek(int64_t offset, int64_t number) {
  CHECK(offset >= 0 && offset <= size_bytes());
  at_ = static_cast<size_t>(offset);
  number_ = number - 1;
}

absl::StatusOr<JsonLinesWriter> JsonLinesWriter::Open(const std::string& path) {
  JsonLinesWriter writer;
  writer.path_ = path;
  writer.fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (writer.fd_ < 0) return ErrnoStatus(errno, "cannot open " + path);
  RETURN_IF_ERROR(writer.CutIncompleteLine());
  return writer;
}

absl::Status JsonLinesWriter::CutIncompleteLine() {
  struct stat info;
  if (fstat(fd_, &info) != 0) return ErrnoStatus(errno, "cannot look at " + path_);
  if (!S_ISREG(info.st_mode)) return absl::OkStatus();  // a pipe or a terminal has nothing to mend
  off_t end = info.st_size;
  char block[4096];
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(sizeof(block)));
    const ssize_t n = pread(fd_, block, static_cast<size_t>(end - begin), begin);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "cannot read " + path_);
    const void* newline = memrchr(block, '\n', static_cast<size_t>(n));
    if (newline != nullptr) {
      end = begin + (static_cast<const char*>(newline) - block) + 1;
      break;
    }
    end = begin;
  }
  if (end != info.st_size && ftruncate(fd_, end) != 0) return ErrnoStatus(errno, "cannot mend " + path_);
  return absl::OkStatus();
}

JsonLinesWriter::JsonLinesWriter(JsonLinesWriter&& other) noexcept { *this = std::move(other); }
JsonLinesWriter& JsonLinesWriter::operator=(JsonLinesWriter&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}
JsonLinesWriter::~JsonLinesWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status JsonLinesWriter::Write(const Json& value) {
  const std::string line = DumpJson(value) + "\n";
  return AppendRecord(fd_, line.data(), line.size(), path_);
}

absl::Status JsonLinesWriter::Sync() {
  if (fdatasync(fd_) != 0) return ErrnoStatus(errno, "cannot flush " + path_);
  return absl::OkStatus();
}

}  // namespace lockstep::formats
