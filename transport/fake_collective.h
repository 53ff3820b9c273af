// A group whose ranks are threads of one process, and which fails on demand: for tests of everything that acts
// together.
//
//   FakeGroup group(3);
//   group.Inject(/*rank=*/1, {.sequence = 4, .kind = FakeFault::Kind::kDrop});
//   std::thread a([&] { Learn(group.rank(0)); }), ...
//
// Each rank's Collective belongs to one thread at a time; the FakeGroup outlives them all. Sums and maxima are computed
// in rank order, once all ranks have called. Differences between what ranks call are reported with both call sites.
#ifndef LOCKSTEP_TRANSPORT_FAKE_COLLECTIVE_H_
#define LOCKSTEP_TRANSPORT_FAKE_COLLECTIVE_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "transport/collective.h"

namespace lockstep::transport {

struct FakeFault {
  enum class Kind {
    kDelay,  // the call arrives after `delay`
    kDrop,   // the call never arrives: the others run into their deadlines
    kFail,   // this rank's Wait returns `error`; its call does arrive
    kDie,    // the rank is dead from this call on: all Waits say Unavailable and name it
  };
  int64_t sequence = 0;  // which of the rank's operations, counted from 0
  Kind kind = Kind::kDrop;
  std::chrono::milliseconds delay{0};
  absl::Status error;
};

class FakeGroup {
 public:
  explicit FakeGroup(int world_size);
  ~FakeGroup();
  FakeGroup(const FakeGroup&) = delete;
  FakeGroup& operator=(const FakeGroup&) = delete;

  Collective& rank(int rank);
  void Inject(int rank, FakeFault fault);

 private:
  class Rank;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_TRANSPORT_FAKE_COLLECTIVE_H_
