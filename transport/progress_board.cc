#include "transport/progress_board.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"

namespace lockstep::transport {

struct ProgressBoard::Record {
  int64_t sequence;
  uint64_t num_bytes;
  int32_t kind;
  int32_t root;
  int32_t line;
  char file[kWords * 8 - 28];  // the end of the path, 0-terminated

  std::string Describe() const {
    return absl::StrCat(CollectiveKindName(static_cast<CollectiveKind>(kind)), " of ", num_bytes, " bytes at ", file,
                        ":", line, " (operation ", sequence, ")");
  }
};

size_t ProgressBoard::NumBytes(int num_rows) { return sizeof(Row) * static_cast<size_t>(num_rows); }

ProgressBoard::ProgressBoard(void* memory, int my_row, std::vector<int> ranks)
    : rows_(static_cast<Row*>(memory)), my_row_(my_row), ranks_(std::move(ranks)) {
  static_assert(sizeof(Record) == kWords * 8);
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  rows_[my_row_].pid.store(getpid());
}

void ProgressBoard::Post(const CollectiveCall& call) {
  Record record = {};
  record.sequence = call.sequence;
  record.num_bytes = call.num_bytes();
  record.kind = static_cast<int32_t>(call.kind);
  record.root = call.root;
  record.line = call.site.line;
  const std::string file = call.site.file;
  const size_t kept = std::min(file.size(), sizeof record.file - 1);
  std::memcpy(record.file, file.data() + (file.size() - kept), kept);

  uint64_t words[kWords];
  std::memcpy(words, &record, sizeof record);
  Row& row = rows_[my_row_];
  Entry& entry = row.entries[call.sequence % kKept];
  entry.sequence_plus_1.store(0);
  for (int i = 0; i < kWords; ++i) entry.words[i].store(words[i]);
  entry.sequence_plus_1.store(static_cast<uint64_t>(call.sequence) + 1);
  row.num_started.store(call.sequence + 1);
}

std::optional<ProgressBoard::Record> ProgressBoard::ReadEntry(int row, int64_t sequence) const {
  const Entry& entry = rows_[row].entries[sequence % kKept];
  const uint64_t wanted = static_cast<uint64_t>(sequence) + 1;
  if (entry.sequence_plus_1.load() != wanted) return std::nullopt;
  uint64_t words[kWords];
  for (int i = 0; i < kWords; ++i) words[i] = entry.words[i].load();
  if (entry.sequence_plus_1.load() != wanted) return std::nullopt;
  Record record;
  std::memcpy(&record, words, sizeof record);
  return record;
}

absl::Status ProgressBoard::CheckAgreement(const CollectiveCall& mine) const {
  for (int row = 0; row < static_cast<int>(ranks_.size()); ++row) {
    const std::optional<Record> theirs = ReadEntry(row, mine.sequence);
    if (!theirs.has_value()) continue;
    if (theirs->kind == static_cast<int32_t>(mine.kind) && theirs->num_bytes == mine.num_bytes() &&
        theirs->root == mine.root) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat("ranks called different operations: rank ", ranks_[my_row_], " ",
                                                      mine.Describe(), ", rank ", ranks_[row], " ",
                                                      theirs->Describe()));
  }
  return absl::OkStatus();
}

absl::Status ProgressBoard::CheckAlive(int64_t sequence) const {
  for (int row = 0; row < static_cast<int>(ranks_.size()); ++row) {
    if (rows_[row].num_started.load() > sequence) continue;
    const pid_t pid = static_cast<pid_t>(rows_[row].pid.load());
    if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) {
      return absl::UnavailableError(absl::StrCat("rank ", ranks_[row], " (pid ", pid, ") is dead"));
    }
  }
  return absl::OkStatus();
}

std::string ProgressBoard::WhoIsMissing(int64_t sequence) const {
  std::vector<std::string> missing;
  for (int row = 0; row < static_cast<int>(ranks_.size()); ++row) {
    const int64_t num_started = rows_[row].num_started.load();
    if (num_started > sequence) continue;
    const std::optional<Record> last = num_started > 0 ? ReadEntry(row, num_started - 1) : std::nullopt;
    missing.push_back(absl::StrCat(
        "rank ", ranks_[row], " has not reached it (its last: ", last.has_value() ? last->Describe() : "none", ")"));
  }
  if (missing.empty())
    return "all ranks of this node have started it: a rank of another node is missing, or it is slow";
  return absl::StrJoin(missing, "; ");
}

}  // namespace lockstep::transport
