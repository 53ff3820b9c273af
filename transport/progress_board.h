// Shared memory in which the ranks of one node note the collective operation they have reached, so that a wait which
// fails can say who is missing and who called something else. Internal to MpiCollective.
//
// Each rank writes its own row alone: the number of operations it has started and the last kKept of them in a ring. All
// words are atomic; an entry that is rewritten while it is read is recognised by its sequence and ignored.
#ifndef LOCKSTEP_TRANSPORT_PROGRESS_BOARD_H_
#define LOCKSTEP_TRANSPORT_PROGRESS_BOARD_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/collective.h"

namespace lockstep::transport {

class ProgressBoard {
 public:
  static size_t NumBytes(int num_rows);

  // `memory`: [NumBytes(num_rows)], zeroed, shared by all rows' owners, kept by the caller. `ranks[row]` is the row's
  // rank in the group.
  ProgressBoard(void* memory, int my_row, std::vector<int> ranks);

  void Post(const CollectiveCall& call);

  // FailedPrecondition if a rank of this node called something else as the same operation.
  absl::Status CheckAgreement(const CollectiveCall& mine) const;
  // Unavailable if a rank of this node that has not reached the operation is no more.
  absl::Status CheckAlive(int64_t sequence) const;
  // "rank 1 has not reached it (its last: Barrier of 0 bytes at x.cc:7 (operation 3))"
  std::string WhoIsMissing(int64_t sequence) const;

 private:
  static constexpr int kKept = 16;
  static constexpr int kWords = 16;
  struct Entry {
    std::atomic<uint64_t> sequence_plus_1;  // 0: empty or being written
    std::atomic<uint64_t> words[kWords];
  };
  struct Row {
    std::atomic<int64_t> pid;
    std::atomic<int64_t> num_started;
    Entry entries[kKept];
  };
  // What an entry's words hold.
  struct Record;

  std::optional<Record> ReadEntry(int row, int64_t sequence) const;

  Row* const rows_;
  const int my_row_;
  const std::vector<int> ranks_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_TRANSPORT_PROGRESS_BOARD_H_
