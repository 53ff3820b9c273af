#include "runtime/process/line_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace lockstep::process {
namespace {

void SetNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  CHECK(flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
}

// Milliseconds for poll(), rounded up so that the last wait is not a busy one.
int PollTimeout(Deadline deadline) {
  if (deadline == Deadline::max()) return -1;
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left <= left.zero()) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<int64_t>(ms, INT_MAX));
}

bool Passed(Deadline deadline) { return std::chrono::steady_clock::now() >= deadline; }

}  // namespace

LineChannel::LineChannel(int write_fd, int read_fd, size_t max_line_bytes)
    : write_fd_(write_fd), read_fd_(read_fd), max_line_bytes_(max_line_bytes) {
  SetNonBlocking(write_fd_);
  SetNonBlocking(read_fd_);
}

LineChannel::~LineChannel() {
  CloseWrite();
  close(read_fd_);
}

void LineChannel::CloseWrite() {
  if (write_fd_ < 0) return;
  close(write_fd_);
  write_fd_ = -1;
  if (write_error_.ok()) write_error_ = absl::FailedPreconditionError("the channel's write end was closed");
}

absl::Status LineChannel::WriteLine(std::string_view line, Deadline deadline) {
  CHECK(line.find('\n') == std::string_view::npos);
  if (!write_error_.ok()) return write_error_;
  std::string bytes(line);
  bytes.push_back('\n');
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n = write(write_fd_, bytes.data() + written, bytes.size() - written);
    if (n >= 0) {
      written += static_cast<size_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EPIPE) return write_error_ = absl::UnavailableError("the process closed its standard input");
    if (errno != EAGAIN) return write_error_ = ErrnoStatus(errno, "writing to the process");
    if (Passed(deadline)) {
      const absl::Status late =
          absl::DeadlineExceededError(absl::StrCat("the process did not read its standard input in time (", written,
                                                   " of ", bytes.size(), " bytes of the line were taken)"));
      if (written > 0) write_error_ = late;
      return late;
    }
    // Room to write, or output that the process wants to be rid of before it reads on.
    const bool take_in = read_error_.ok() && !end_of_input_ && buffer_.size() < max_line_bytes_;
    pollfd fds[2] = {{write_fd_, POLLOUT, 0}, {take_in ? read_fd_ : -1, POLLIN, 0}};
    if (poll(fds, 2, PollTimeout(deadline)) < 0 && errno != EINTR) {
      return write_error_ = ErrnoStatus(errno, "waiting for the process");
    }
    if (take_in && fds[1].revents != 0) (void)Fill();  // an error there is ReadLine's to tell
  }
  return absl::OkStatus();
}

absl::Status LineChannel::Fill() {
  char chunk[1 << 16];
  while (!end_of_input_ && buffer_.size() <= max_line_bytes_) {
    const ssize_t n = read(read_fd_, chunk, sizeof chunk);
    if (n > 0) {
      buffer_.append(chunk, static_cast<size_t>(n));
    } else if (n == 0) {
      end_of_input_ = true;
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      return read_error_ = ErrnoStatus(errno, "reading from the process");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LineChannel::ReadLine(Deadline deadline) {
  while (true) {
    const size_t end = buffer_.find('\n', searched_);
    if (end != std::string::npos && end <= max_line_bytes_) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      searched_ = 0;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return line;
    }
    searched_ = buffer_.size();
    if (!read_error_.ok()) return read_error_;
    if (buffer_.size() > max_line_bytes_) {
      return read_error_ = absl::ResourceExhaustedError(
                 absl::StrCat("the process wrote a line longer than ", max_line_bytes_, " bytes"));
    }
    if (end_of_input_) {
      read_error_ = absl::UnavailableError("the process closed its standard output");
      if (buffer_.empty()) return read_error_;
      searched_ = 0;
      return std::exchange(buffer_, std::string());
    }
    pollfd fd = {read_fd_, POLLIN, 0};
    const int ready = poll(&fd, 1, PollTimeout(deadline));
    if (ready < 0 && errno != EINTR) return read_error_ = ErrnoStatus(errno, "waiting for the process");
    if (ready > 0) {
      RETURN_IF_ERROR(Fill());
    } else if (Passed(deadline)) {
      return absl::DeadlineExceededError("the process did not answer in time");
    }
  }
}

}  // namespace lockstep::process
