#include "transport/collective.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace lockstep::transport {

Deadline After(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return Deadline::max();
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(duration);
}

bool BackOff::Sleep() {
  const Deadline now = std::chrono::steady_clock::now();
  if (now >= deadline_) return false;
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(next_, deadline_ - now));
  next_ = std::min(next_ + next_ / 2, longest_);
  return true;
}

const char* CollectiveKindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "AllGather";
    case CollectiveKind::kReduceScatterSum:
      return "ReduceScatterSum";
    case CollectiveKind::kAllReduceSum:
      return "AllReduceSum";
    case CollectiveKind::kAllReduceMax:
      return "AllReduceMax";
    case CollectiveKind::kBroadcast:
      return "Broadcast";
    case CollectiveKind::kBarrier:
      return "Barrier";
  }
  return "unknown operation";
}

uint64_t CollectiveCall::num_bytes() const {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return bytes_in.size();
    case CollectiveKind::kBroadcast:
      return bytes_out.size();
    case CollectiveKind::kReduceScatterSum:
    case CollectiveKind::kAllReduceSum:
    case CollectiveKind::kAllReduceMax:
      return values_out.size() * sizeof(int64_t);
    case CollectiveKind::kBarrier:
      return 0;
  }
  return 0;
}

std::string CollectiveCall::Describe() const {
  std::string text = absl::StrCat(CollectiveKindName(kind), " of ", num_bytes(), " bytes");
  if (kind == CollectiveKind::kBroadcast) absl::StrAppend(&text, " from rank ", root);
  return absl::StrCat(text, " at ", site.file, ":", site.line, " (operation ", sequence, ")");
}

bool CollectiveCall::Matches(const CollectiveCall& other) const {
  return kind == other.kind && root == other.root && num_bytes() == other.num_bytes() && sequence == other.sequence;
}

Collective::Handle Collective::StartChecked(CollectiveCall call) {
  call.sequence = next_sequence_++;
  num_bytes_in_ +=
      call.kind == CollectiveKind::kReduceScatterSum ? call.values_in.size() * sizeof(int64_t) : call.num_bytes();
  if (broken_.ok()) Start(call);
  return Handle(call.sequence);
}

absl::Status Collective::Wait(Handle handle, Deadline deadline) {
  CHECK_GE(handle.sequence_, 0);
  if (!broken_.ok()) return broken_;
  broken_ = Finish(handle.sequence_, deadline);
  return broken_;
}

Collective::Handle Collective::AllGather(absl::Span<const uint8_t> mine, absl::Span<uint8_t> all, CallSite site) {
  CHECK_EQ(all.size(), mine.size() * static_cast<size_t>(world_size()));
  CollectiveCall call;
  call.kind = CollectiveKind::kAllGather;
  call.bytes_in = mine;
  call.bytes_out = all;
  call.site = site;
  return StartChecked(call);
}

Collective::Handle Collective::ReduceScatterSum(absl::Span<const int64_t> all, absl::Span<int64_t> mine,
                                                CallSite site) {
  CHECK_EQ(all.size(), mine.size() * static_cast<size_t>(world_size()));
  CollectiveCall call;
  call.kind = CollectiveKind::kReduceScatterSum;
  call.values_in = all;
  call.values_out = mine;
  call.site = site;
  return StartChecked(call);
}

Collective::Handle Collective::AllReduceSum(absl::Span<int64_t> values, CallSite site) {
  CollectiveCall call;
  call.kind = CollectiveKind::kAllReduceSum;
  call.values_out = values;
  call.site = site;
  return StartChecked(call);
}

Collective::Handle Collective::AllReduceMax(absl::Span<int64_t> values, CallSite site) {
  CollectiveCall call;
  call.kind = CollectiveKind::kAllReduceMax;
  call.values_out = values;
  call.site = site;
  return StartChecked(call);
}

Collective::Handle Collective::Broadcast(int root, absl::Span<uint8_t> bytes, CallSite site) {
  CHECK(root >= 0 && root < world_size());
  CollectiveCall call;
  call.kind = CollectiveKind::kBroadcast;
  call.root = root;
  call.bytes_out = bytes;
  call.site = site;
  return StartChecked(call);
}

Collective::Handle Collective::Barrier(CallSite site) {
  CollectiveCall call;
  call.site = site;
  return StartChecked(call);
}

void SingleRankCollective::Start(const CollectiveCall& call) {
  if (call.kind == CollectiveKind::kAllGather && !call.bytes_in.empty()) {
    std::memmove(call.bytes_out.data(), call.bytes_in.data(), call.bytes_in.size());
  }
  if (call.kind == CollectiveKind::kReduceScatterSum && !call.values_in.empty()) {
    std::memmove(call.values_out.data(), call.values_in.data(), call.values_in.size() * sizeof(int64_t));
  }
}

absl::Status SingleRankCollective::Finish(int64_t, Deadline) { return absl::OkStatus(); }

absl::Status JoinStatus(Collective& group, const absl::Status& mine, Deadline deadline, CallSite site) {
  constexpr size_t kMaxText = 1024;
  // [code: 1][length: 2][text: kMaxText] of each rank.
  constexpr size_t kRecord = 3 + kMaxText;
  // First the cheap question, since nearly always all is well: did anyone fail?
  int64_t worst = mine.ok() ? 0 : 1;
  RETURN_IF_ERROR(group.Wait(group.AllReduceMax(absl::MakeSpan(&worst, 1), site), deadline));
  if (worst == 0) return absl::OkStatus();
  std::vector<uint8_t> record(kRecord), all(kRecord * static_cast<size_t>(group.world_size()));
  const std::string text = Message(mine).substr(0, kMaxText);
  record[0] = static_cast<uint8_t>(mine.code());
  record[1] = static_cast<uint8_t>(text.size() & 0xff);
  record[2] = static_cast<uint8_t>(text.size() >> 8);
  std::copy(text.begin(), text.end(), record.begin() + 3);
  RETURN_IF_ERROR(group.Wait(group.AllGather(record, absl::MakeSpan(all), site), deadline));
  for (int rank = 0; rank < group.world_size(); ++rank) {
    const uint8_t* theirs = all.data() + static_cast<size_t>(rank) * kRecord;
    if (theirs[0] == 0) continue;
    const size_t length = std::min<size_t>(theirs[1] | theirs[2] << 8, kMaxText);
    const std::string message(reinterpret_cast<const char*>(theirs + 3), length);
    return absl::Status(static_cast<absl::StatusCode>(theirs[0]), absl::StrCat("rank ", rank, ": ", message));
  }
  return absl::InternalError("a rank reported an error without one");
}

absl::Status BroadcastText(Collective& group, int root, std::string& text, Deadline deadline, CallSite site) {
  constexpr int64_t kMaxBytes = int64_t{64} << 20;
  CHECK(group.rank() != root || static_cast<int64_t>(text.size()) <= kMaxBytes);
  int64_t size = static_cast<int64_t>(text.size());
  const absl::Span<uint8_t> size_bytes(reinterpret_cast<uint8_t*>(&size), sizeof size);
  RETURN_IF_ERROR(group.Wait(group.Broadcast(root, size_bytes, site), deadline));
  if (size < 0 || size > kMaxBytes) return absl::InternalError("a text of impossible length was broadcast");
  text.resize(static_cast<size_t>(size));
  const absl::Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(text.data()), text.size());
  return group.Wait(group.Broadcast(root, bytes, site), deadline);
}

}  // namespace lockstep::transport
