#include "transport/fake_collective.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"

namespace lockstep::transport {
namespace {

// One operation of the group: who has come, with which buffers.
struct Operation {
  explicit Operation(int world_size) : calls(static_cast<size_t>(world_size)) {}
  std::vector<std::optional<CollectiveCall>> calls;  // [world_size]
  int num_arrived = 0;
  int num_finished = 0;  // ranks whose Wait is over
  bool done = false;     // results are written
  absl::Status mismatch;
};

void AllGather(const Operation& operation) {
  for (const auto& reader : operation.calls) {
    uint8_t* out = reader->bytes_out.data();
    for (const auto& writer : operation.calls) {
      if (writer->bytes_in.empty()) continue;
      std::memmove(out, writer->bytes_in.data(), writer->bytes_in.size());
      out += writer->bytes_in.size();
    }
  }
}

void Broadcast(const Operation& operation) {
  const auto& root = operation.calls[static_cast<size_t>(operation.calls[0]->root)];
  for (const auto& call : operation.calls) {
    if (call->bytes_out.empty() || &call == &root) continue;
    std::memcpy(call->bytes_out.data(), root->bytes_out.data(), root->bytes_out.size());
  }
}

void ReduceScatter(const Operation& operation) {
  const size_t n = operation.calls[0]->values_out.size();
  for (size_t rank = 0; rank < operation.calls.size(); ++rank) {
    std::vector<uint64_t> sum(n);
    for (const auto& call : operation.calls) {
      for (size_t i = 0; i < n; ++i) sum[i] += static_cast<uint64_t>(call->values_in[rank * n + i]);
    }
    for (size_t i = 0; i < n; ++i) operation.calls[rank]->values_out[i] = static_cast<int64_t>(sum[i]);
  }
}

void AllReduce(const Operation& operation, bool sum) {
  const auto first = operation.calls[0]->values_out;
  std::vector<int64_t> result(first.begin(), first.end());
  for (size_t rank = 1; rank < operation.calls.size(); ++rank) {
    const auto values = operation.calls[rank]->values_out;
    for (size_t i = 0; i < result.size(); ++i) {
      const uint64_t wrapped = static_cast<uint64_t>(result[i]) + static_cast<uint64_t>(values[i]);
      result[i] = sum ? static_cast<int64_t>(wrapped) : std::max(result[i], values[i]);
    }
  }
  for (const auto& call : operation.calls) std::copy(result.begin(), result.end(), call->values_out.begin());
}

void Compute(const Operation& operation) {
  switch (operation.calls[0]->kind) {
    case CollectiveKind::kAllGather:
      return AllGather(operation);
    case CollectiveKind::kBroadcast:
      return Broadcast(operation);
    case CollectiveKind::kReduceScatterSum:
      return ReduceScatter(operation);
    case CollectiveKind::kAllReduceSum:
      return AllReduce(operation, /*sum=*/true);
    case CollectiveKind::kAllReduceMax:
      return AllReduce(operation, /*sum=*/false);
    case CollectiveKind::kBarrier:
      return;
  }
}

}  // namespace

struct FakeGroup::State {
  explicit State(int size) : world_size(size) {}

  const int world_size;
  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  std::map<int64_t, Operation> operations;
  std::map<std::pair<int, int64_t>, FakeFault> faults;  // by (rank, sequence)
  std::set<int> dead;
  std::vector<std::unique_ptr<Rank>> ranks;

  void Arrive(int rank, const CollectiveCall& call) {
    const std::lock_guard<std::mutex> lock(mutex);
    Operation& operation = operations.try_emplace(call.sequence, world_size).first->second;
    for (int other = 0; other < world_size; ++other) {
      const auto& theirs = operation.calls[static_cast<size_t>(other)];
      if (theirs.has_value() && !theirs->Matches(call) && operation.mismatch.ok()) {
        operation.mismatch =
            absl::FailedPreconditionError(absl::StrCat("ranks called different operations: rank ", other, " ",
                                                       theirs->Describe(), ", rank ", rank, " ", call.Describe()));
      }
    }
    operation.calls[static_cast<size_t>(rank)] = call;
    if (++operation.num_arrived == world_size && operation.mismatch.ok()) {
      Compute(operation);
      operation.done = true;
    }
    changed.notify_all();
  }

  void Die(int rank) {
    const std::lock_guard<std::mutex> lock(mutex);
    dead.insert(rank);
    changed.notify_all();
  }

  absl::Status Finish(int64_t sequence, Deadline deadline) {
    std::unique_lock<std::mutex> lock(mutex);
    Operation& operation = operations.try_emplace(sequence, world_size).first->second;
    const auto over = [&] { return operation.done || !operation.mismatch.ok() || !dead.empty(); };
    if (deadline == Deadline::max()) {
      changed.wait(lock, over);
    } else {
      changed.wait_until(lock, deadline, over);
    }
    const absl::Status result = Verdict(operation, sequence);
    if (operation.done && ++operation.num_finished == world_size) operations.erase(sequence);
    return result;
  }

  absl::Status Verdict(const Operation& operation, int64_t sequence) const {
    if (operation.done) return absl::OkStatus();
    if (!operation.mismatch.ok()) return operation.mismatch;
    if (!dead.empty()) return absl::UnavailableError(absl::StrCat("rank ", absl::StrJoin(dead, ", "), " is dead"));
    std::vector<int> missing;
    std::string what;
    for (int rank = 0; rank < world_size; ++rank) {
      const auto& call = operation.calls[static_cast<size_t>(rank)];
      if (!call.has_value()) missing.push_back(rank);
      if (call.has_value() && what.empty()) what = call->Describe();
    }
    return absl::DeadlineExceededError(absl::StrCat("rank ", absl::StrJoin(missing, ", "), " did not reach ",
                                                    what.empty() ? absl::StrCat("operation ", sequence) : what,
                                                    " in time"));
  }

  std::optional<FakeFault> TakeFault(int rank, int64_t sequence) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = faults.find({rank, sequence});
    if (found == faults.end()) return std::nullopt;
    return found->second;
  }
};

class FakeGroup::Rank final : public Collective {
 public:
  Rank(State* state, int rank) : state_(state), rank_(rank) {}
  int rank() const override { return rank_; }
  int world_size() const override { return state_->world_size; }

 private:
  void Start(const CollectiveCall& call) override {
    const std::optional<FakeFault> fault = state_->TakeFault(rank_, call.sequence);
    if (fault.has_value()) {
      if (fault->kind == FakeFault::Kind::kDelay) std::this_thread::sleep_for(fault->delay);
      if (fault->kind == FakeFault::Kind::kDrop) return;
      if (fault->kind == FakeFault::Kind::kDie) return state_->Die(rank_);
    }
    state_->Arrive(rank_, call);
  }

  absl::Status Finish(int64_t sequence, Deadline deadline) override {
    const absl::Status result = state_->Finish(sequence, deadline);
    const std::optional<FakeFault> fault = state_->TakeFault(rank_, sequence);
    if (fault.has_value() && fault->kind == FakeFault::Kind::kFail) return fault->error;
    return result;
  }

  State* const state_;
  const int rank_;
};

FakeGroup::FakeGroup(int world_size) : state_(std::make_unique<State>(world_size)) {
  CHECK_GT(world_size, 0);
  for (int rank = 0; rank < world_size; ++rank) state_->ranks.push_back(std::make_unique<Rank>(state_.get(), rank));
}

FakeGroup::~FakeGroup() = default;

Collective& FakeGroup::rank(int rank) {
  CHECK(rank >= 0 && rank < state_->world_size);
  return *state_->ranks[static_cast<size_t>(rank)];
}

void FakeGroup::Inject(int rank, FakeFault fault) {
  CHECK(fault.kind != FakeFault::Kind::kFail || !fault.error.ok());
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->faults[{rank, fault.sequence}] = std::move(fault);
}

}  // namespace lockstep::transport
