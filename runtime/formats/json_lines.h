// JSON Lines: one JSON object a line, UTF-8.
//
//   ASSIGN_OR_RETURN(JsonLinesReader reader, JsonLinesReader::Open(path));
//   JsonLine line;
//   while (true) {
//     ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
//     if (!more) break;
//     ...*line.value, line.number...
//   }
//
// The reader is strict, because a data file with a hole in it is a data file that something went wrong with: an empty
// line, invalid UTF-8 (a byte order mark included), broken JSON or a value that is not an object is an InvalidArgument
// error "path:line: what". "\r\n" ends a line too, and the last line needs no end.
//
// Thread contract: one thread per object.
#ifndef LOCKSTEP_RUNTIME_FORMATS_JSON_LINES_H_
#define LOCKSTEP_RUNTIME_FORMATS_JSON_LINES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"

namespace lockstep::formats {

// A line and where it stands. Users include <nlohmann/json.hpp> in their .cc file.
struct JsonLine {
  std::unique_ptr<Json> value;  // an object
  int64_t number = 0;           // from 1
  int64_t offset = 0;           // bytes from the start of the file to the start of the line
  JsonLine();
  JsonLine(JsonLine&&) noexcept;
  JsonLine& operator=(JsonLine&&) noexcept;
  ~JsonLine();
};

class JsonLinesReader {
 public:
  // NotFound, PermissionDenied, or InvalidArgument for something that is not a plain file. An empty file has no lines.
  static absl::StatusOr<JsonLinesReader> Open(const std::string& path);

  // False at the end. After an error the reader stands behind the bad line: a caller may go on.
  absl::StatusOr<bool> Next(JsonLine* line);

  // Continues at a line's offset (as Next reported it) and counts lines from `number`. CHECKs that it is in the file.
  void Seek(int64_t offset, int64_t number);

  const std::string& path() const { return file_.path(); }
  int64_t size_bytes() const { return static_cast<int64_t>(file_.size()); }

 private:
  MappedFile file_;
  size_t at_ = 0;
  int64_t number_ = 0;  // of the line last read
};

// The object of one line that is not from a file (a pipe, a request); `where` stands before the message.
absl::StatusOr<Json> ParseJsonLine(const std::string& text, const std::string& where);

// True if `text` is well-formed UTF-8 (no overlong forms, no surrogates, nothing above U+10FFFF).
bool IsValidUtf8(const char* text, size_t num_bytes);

// Appends to a file (created 0600). Each line is one write, so another process sees whole lines only; a line that does
// not fit on the disk is taken back, and the error says so. An incomplete last line, left by a process that died, is
// cut off when the file is opened.
class JsonLinesWriter {
 public:
  static absl::StatusOr<JsonLinesWriter> Open(const std::string& path);
  JsonLinesWriter(JsonLinesWriter&& other) noexcept;
  JsonLinesWriter& operator=(JsonLinesWriter&& other) noexcept;
  ~JsonLinesWriter();

  absl::Status Write(const Json& value);
  absl::Status Sync();  // what was written survives a power cut

  const std::string& path() const { return path_; }

 private:
  JsonLinesWriter() = default;
  absl::Status CutIncompleteLine();

  int fd_ = -1;
  std::string path_;
};

}  // namespace lockstep::formats

#endif  // LOCKSTEP_RUNTIME_FORMATS_JSON_LINES_H_
