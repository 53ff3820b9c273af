// Lines of text to and from a child over two pipes, with deadlines: a child that stalls costs its caller a deadline,
// never the run.
//
// While WriteLine waits for room it takes in what the child writes meanwhile, so a child that answers before it has
// read everything causes no deadlock. What is taken in and not yet read is bounded by max_line_bytes; beyond that the
// child waits.
//
// Errors (sticky, except DeadlineExceeded of ReadLine): DeadlineExceeded (a line written halfway makes the channel
// unusable), Unavailable (the child closed its end), ResourceExhausted (a line longer than max_line_bytes).
//
// Thread contract: one thread.
#ifndef LOCKSTEP_RUNTIME_PROCESS_LINE_CHANNEL_H_
#define LOCKSTEP_RUNTIME_PROCESS_LINE_CHANNEL_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::process {

// A moment of the steady clock (the same type as transport::Deadline).
using Deadline = std::chrono::steady_clock::time_point;

class LineChannel {
 public:
  // Takes both descriptors over and makes them non-blocking. Needs SIGPIPE ignored (Spawner does that).
  LineChannel(int write_fd, int read_fd, size_t max_line_bytes = size_t{16} << 20);
  ~LineChannel();
  LineChannel(const LineChannel&) = delete;
  LineChannel& operator=(const LineChannel&) = delete;

  // Writes `line` and '\n'. CHECKs that `line` holds no '\n'.
  absl::Status WriteLine(std::string_view line, Deadline deadline);

  // The next line, without '\n' (and without '\r' before it). A last line without '\n' counts.
  absl::StatusOr<std::string> ReadLine(Deadline deadline);

  // The child sees end of file on its stdin.
  void CloseWrite();

 private:
  absl::Status Fill();  // takes in what is there; never waits

  int write_fd_;
  int read_fd_;
  const size_t max_line_bytes_;
  bool end_of_input_ = false;
  std::string buffer_;
  size_t searched_ = 0;  // buffer_[0, searched_) holds no '\n'
  absl::Status write_error_, read_error_;
};

}  // namespace lockstep::process

#endif  // LOCKSTEP_RUNTIME_PROCESS_LINE_CHANNEL_H_
