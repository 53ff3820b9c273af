#include "rollout/rewards/process_reward.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rollout/rewards/process_protocol.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/process/child_process.h"

namespace lockstep::rollout {
namespace {

using Clock = std::chrono::steady_clock;

// A child whose pipes are closed has ended or is about to: long enough to learn how.
constexpr std::chrono::milliseconds kTimeToEnd{500};

// One process of the command, and what to do when it fails. One thread at a time.
class Worker {
 public:
  Worker(const RewardOptions& options, process::Spawner& spawner) : options_(options), spawner_(spawner) {}

  absl::Status Start() {
    child_.reset();
    process::ChildOptions child;
    child.argv = options_.command;
    child.stdin_mode = child.stdout_mode = process::StdioMode::kPipe;
    ASSIGN_OR_RETURN(child_, spawner_.Spawn(child));
    return absl::OkStatus();
  }

  RewardResult Score(const RewardRequest& request) {
    RewardResult failed;
    const absl::StatusOr<std::string> line = ToRequestLine(request);
    if (!line.ok()) {
      failed.error = Message(line.status());
      return failed;
    }
    for (int attempt = 1; attempt <= options_.max_attempts; ++attempt) {
      absl::StatusOr<RewardResult> result = Ask(request.id, *line);
      if (result.ok()) return *std::move(result);
      failed.error = absl::StrCat("the reward process failed ", attempt, " of ", options_.max_attempts,
                                  " times: ", result.status().message());
      LogWarning(absl::StrCat("sample ", request.id, ": ", failed.error, "; starting it again"));
      // What it may still say belongs to a request that is over. A failed start is the next attempt's failure.
      const absl::Status started = Start();
      if (!started.ok()) LogWarning(absl::StrCat("cannot start the reward process: ", started.message()));
    }
    return failed;
  }

 private:
  absl::StatusOr<RewardResult> Ask(const std::string& id, const std::string& line) {
    if (child_ == nullptr || !child_->IsRunning()) RETURN_IF_ERROR(Start());
    const process::Deadline deadline = Clock::now() + std::chrono::milliseconds(options_.deadline_ms);
    const absl::Status written = child_->lines().WriteLine(line, deadline);
    if (!written.ok()) return Explain(written);
    const absl::StatusOr<std::string> answer = child_->lines().ReadLine(deadline);
    if (!answer.ok()) return Explain(answer.status());
    return ParseAnswer(*answer, id, options_.weights);
  }

  // In the user's words: how their process failed.
  absl::Status Explain(const absl::Status& status) {
    if (absl::IsDeadlineExceeded(status)) {
      return absl::DeadlineExceededError(absl::StrCat("it did not answer within ", options_.deadline_ms, " ms"));
    }
    if (!absl::IsUnavailable(status)) return status;
    const absl::StatusOr<process::ExitReason> reason = child_->Wait(Clock::now() + kTimeToEnd);
    return absl::UnavailableError(reason.ok() ? "it " + reason->Text() : "it closed its output");
  }

  const RewardOptions& options_;
  process::Spawner& spawner_;
  std::unique_ptr<process::ChildProcess> child_;
};

class ProcessReward final : public Reward {
 public:
  explicit ProcessReward(const RewardOptions& options)
      : options_(options), spawner_(options.shim.empty() ? process::SelfShim() : options.shim) {
    for (int i = 0; i < options_.num_processes; ++i) workers_.push_back(std::make_unique<Worker>(options_, spawner_));
  }

  absl::Status Start() {
    for (const auto& worker : workers_) RETURN_IF_ERROR(worker->Start());
    return absl::OkStatus();
  }

  // Each process has a thread that hands it one request after the other.
  std::vector<RewardResult> Score(absl::Span<const RewardRequest> requests) override {
    std::vector<RewardResult> results(requests.size());
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (size_t w = 0; w < std::min(workers_.size(), requests.size()); ++w) {
      threads.emplace_back([&, w] {
        for (size_t i = next++; i < requests.size(); i = next++) results[i] = workers_[w]->Score(requests[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  absl::Status CheckRow(const std::string& row_json) const override {
    RewardRequest request;
    request.row_json = row_json;
    return ToRequestLine(request).status();
  }

 private:
  const RewardOptions options_;
  process::Spawner spawner_;  // outlives the workers: their children die with its thread
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reward>> MakeProcessReward(const RewardOptions& options) {
  auto reward = std::make_unique<ProcessReward>(options);
  RETURN_IF_ERROR(reward->Start());
  return reward;
}

}  // namespace lockstep::rollout
