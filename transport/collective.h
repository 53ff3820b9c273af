// A group of ranks that act together.
//
// Every rank of a group calls the same operations in the same order. An operation is started, then waited for; its
// buffers belong to the group until Wait has returned. Arithmetic is on int64 only, so sums are exact and any reduction
// tree gives the same bits (gradients travel as fixed point).
//
//   RETURN_IF_ERROR(group.Wait(group.AllReduceSum(counts), transport::After(absl::Seconds(30))));
//
// Waits poll with growing sleeps (50 us to 1 ms) and never spin: ranks share few cores.
//
// Errors of Wait:
//   DeadlineExceeded    not all ranks came in time; the message names the ranks that are missing, where they are known
//   Unavailable         a rank is dead; the message names it
//   FailedPrecondition  ranks called different operations; the message names both with their call sites
// After an error the group is broken: later waits return the same error, the buffers in flight must stay alive, and the
// job ends in an abort.
//
// Thread contract: one thread of a rank uses a group; all groups over MPI of one process share that one thread.
//
// Implementations: SingleRankCollective (here), MpiCollective, FakeCollective (ranks are threads of one process).
#ifndef LOCKSTEP_TRANSPORT_COLLECTIVE_H_
#define LOCKSTEP_TRANSPORT_COLLECTIVE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace lockstep::transport {

// A moment of the steady clock: stepping the wall clock moves no deadline.
using Deadline = std::chrono::steady_clock::time_point;
Deadline After(absl::Duration duration);

// Where an operation was called; the default arguments below fill it in.
struct CallSite {
  const char* file;
  int line;
  static constexpr CallSite Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

enum class CollectiveKind : uint8_t {
  kAllGather,
  kReduceScatterSum,
  kAllReduceSum,
  kAllReduceMax,
  kBroadcast,
  kBarrier
};
const char* CollectiveKindName(CollectiveKind kind);  // "AllGather", ...

// One call of one rank, as the implementations see it. Spans that an operation does not use are empty.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  int root = 0;                         // kBroadcast
  absl::Span<const uint8_t> bytes_in;   // kAllGather: mine
  absl::Span<uint8_t> bytes_out;        // kAllGather: all; kBroadcast: the bytes, in and out
  absl::Span<const int64_t> values_in;  // kReduceScatterSum: all
  absl::Span<int64_t> values_out;       // kReduceScatterSum: mine; kAllReduce*: in and out
  CallSite site = {"", 0};
  int64_t sequence = 0;  // position among the group's operations, equal on all ranks

  // Bytes that must be equal on all ranks.
  uint64_t num_bytes() const;
  // "AllReduceSum of 80 bytes at learner/learner.cc:120 (operation 7)"
  std::string Describe() const;
  // Whether two ranks' calls belong together.
  bool Matches(const CollectiveCall& other) const;
};

class Collective {
 public:
  // An operation in flight. Wait for each exactly once, in the order of their start or any other.
  class Handle {
   public:
    Handle() = default;

   private:
    friend class Collective;
    explicit Handle(int64_t sequence) : sequence_(sequence) {}
    int64_t sequence_ = -1;
  };

  virtual ~Collective() = default;
  Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // all: [world_size * mine.size()], rank r's bytes at r * mine.size(). Sizes are equal on all ranks.
  Handle AllGather(absl::Span<const uint8_t> mine, absl::Span<uint8_t> all, CallSite site = CallSite::Here());
  // all: [world_size * mine.size()]; mine receives the sum over the ranks of their all[rank * mine.size() ...).
  Handle ReduceScatterSum(absl::Span<const int64_t> all, absl::Span<int64_t> mine, CallSite site = CallSite::Here());
  // values are replaced by their sum (maximum) over the ranks, element by element. Sums wrap; callers keep them in
  // range.
  Handle AllReduceSum(absl::Span<int64_t> values, CallSite site = CallSite::Here());
  Handle AllReduceMax(absl::Span<int64_t> values, CallSite site = CallSite::Here());
  // bytes of rank `root` replace those of all others.
  Handle Broadcast(int root, absl::Span<uint8_t> bytes, CallSite site = CallSite::Here());
  Handle Barrier(CallSite site = CallSite::Here());

  absl::Status Wait(Handle handle, Deadline deadline);

  // OK, or the error that broke the group.
  const absl::Status& status() const { return broken_; }

  // Bytes that this rank handed to operations so far.
  uint64_t num_bytes_in() const { return num_bytes_in_; }

 private:
  // Sizes are already checked. Errors of starting are kept and returned by Finish.
  virtual void Start(const CollectiveCall& call) = 0;
  virtual absl::Status Finish(int64_t sequence, Deadline deadline) = 0;

  Handle StartChecked(CollectiveCall call);

  int64_t next_sequence_ = 0;
  uint64_t num_bytes_in_ = 0;
  absl::Status broken_;
};

// Sleeps between polls: 50 us, then growing by half each time up to `longest`. Never past the deadline.
class BackOff {
 public:
  explicit BackOff(Deadline deadline, std::chrono::microseconds longest = std::chrono::milliseconds(1))
      : deadline_(deadline), longest_(longest) {}
  // False once the deadline has passed; otherwise sleeps, then returns true.
  bool Sleep();

 private:
  const Deadline deadline_;
  const std::chrono::microseconds longest_;
  std::chrono::microseconds next_{50};
};

// A group of one: every operation is done when it starts. Needs no MPI.
class SingleRankCollective final : public Collective {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }

 private:
  void Start(const CollectiveCall& call) override;
  absl::Status Finish(int64_t sequence, Deadline deadline) override;
};

// Shorthands for what the train loop needs most. All block until `deadline`.

// Joins a verdict over all ranks: OK if every rank passes OK, else the error of the lowest failing rank, on every rank
// (code and message; messages are cut at 1 KB).
absl::Status JoinStatus(Collective& group, const absl::Status& mine, Deadline deadline,
                        CallSite site = CallSite::Here());

// Text of any length from `root` to all. `text` is read on root and replaced elsewhere; at most 64 MB.
absl::Status BroadcastText(Collective& group, int root, std::string& text, Deadline deadline,
                           CallSite site = CallSite::Here());

}  // namespace lockstep::transport

#endif  // LOCKSTEP_TRANSPORT_COLLECTIVE_H_
