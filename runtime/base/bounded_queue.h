// A bounded, closeable queue between threads.
//
// Push waits while the queue is full, Pop while it is empty; both give up at the deadline. After Close, Push fails and
// Pop still hands out what is left, then fails: nothing accepted is lost.
//
// Returned codes: DeadlineExceeded (time ran out), Cancelled (closed). Thread-safe, any number of producers and
// consumers.
#ifndef LOCKSTEP_RUNTIME_BASE_BOUNDED_QUEUE_H_
#define LOCKSTEP_RUNTIME_BASE_BOUNDED_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/check.h"

namespace lockstep {

template <typename T>
class BoundedQueue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit BoundedQueue(size_t capacity) : capacity_(capacity) { CHECK_GT(capacity, 0u); }

  absl::Status Push(T item, Clock::time_point deadline = Clock::time_point::max()) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!Wait(lock, not_full_, deadline, [this] { return closed_ || items_.size() < capacity_; })) {
      return absl::DeadlineExceededError("the queue stayed full until the deadline");
    }
    if (closed_) return absl::CancelledError("the queue is closed");
    items_.push_back(std::move(item));
    not_empty_.notify_one();
    return absl::OkStatus();
  }

  absl::StatusOr<T> Pop(Clock::time_point deadline = Clock::time_point::max()) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!Wait(lock, not_empty_, deadline, [this] { return closed_ || !items_.empty(); })) {
      return absl::DeadlineExceededError("the queue stayed empty until the deadline");
    }
    if (items_.empty()) return absl::CancelledError("the queue is closed");
    T item = std::move(items_.front());
    items_.pop_front();
    not_full_.notify_one();
    return item;
  }

  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    not_full_.notify_all();
    not_empty_.notify_all();
  }

  size_t size() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return items_.size();
  }

 private:
  template <typename Ready>
  static bool Wait(std::unique_lock<std::mutex>& lock, std::condition_variable& condition, Clock::time_point deadline,
                   Ready ready) {
    if (deadline == Clock::time_point::max()) {
      condition.wait(lock, ready);
      return true;
    }
    return condition.wait_until(lock, deadline, ready);
  }

  const size_t capacity_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable not_full_, not_empty_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_BASE_BOUNDED_QUEUE_H_
