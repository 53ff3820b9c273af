#include "rollout/rewards/process_reward.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/process/child_process.h"

namespace lockstep::rollout {
namespace {

absl::StatusOr<std::string> RequestLine(const RewardRequest& request) {
  ASSIGN_OR_RETURN(Json line, ParseJson(request.row_json));
  line["id"] = request.id;
  line["completion"] = request.completion;
  line["finish_reason"] = request.finish_reason;
  return DumpJson(line);
}

absl::Status ReadAnswer(const std::string& text, const RewardRequest& request, const RewardOptions& options,
                        RewardResult& result) {
  const auto bad = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("the reward's answer ", what));
  };
  absl::StatusOr<Json> answer = ParseJson(text);
  if (!answer.ok() || !answer->is_object()) return bad("is not a JSON object");
  if (!answer->contains("id") || (*answer)["id"] != request.id) return bad(absl::StrCat("is not for id ", request.id));
  if (answer->contains("error")) {
    result.error =
        (*answer)["error"].is_string() ? (*answer)["error"].get<std::string>() : "the reward reported an error";
    return absl::OkStatus();
  }
  if (answer->contains("reward") && (*answer)["reward"].is_number()) {
    result.reward = (*answer)["reward"].get<double>();
  } else if (answer->contains("rewards") && (*answer)["rewards"].is_object()) {
    for (const auto& [name, value] : (*answer)["rewards"].items()) {
      if (!value.is_number()) return bad(absl::StrCat("has a reward '", name, "' that is no number"));
      const auto weight = options.weights.find(name);
      result.parts[name] = value.get<double>();
      result.reward += (weight == options.weights.end() ? 1.0 : weight->second) * value.get<double>();
    }
  } else {
    return bad("has neither \"reward\" nor \"rewards\" nor \"error\"");
  }
  if (!std::isfinite(result.reward)) result.error = "the reward is not finite";
  return absl::OkStatus();
}

class ProcessReward final : public Reward {
 public:
  explicit ProcessReward(const RewardOptions& options)
      : options_(options), spawner_(process::SelfShim()), children_(options.num_processes) {
    child_options_.argv = options.command;
    child_options_.stdin_mode = child_options_.stdout_mode = process::StdioMode::kPipe;
  }

  absl::Status Start() {
    for (auto& child : children_) RETURN_IF_ERROR(Restart(child));
    return absl::OkStatus();
  }

  // Each process has a thread that hands it one request after the other.
  std::vector<RewardResult> Score(absl::Span<const RewardRequest> requests) override {
    std::vector<RewardResult> results(requests.size());
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (auto& child : children_) {
      threads.emplace_back([&] {
        for (size_t i = next.fetch_add(1); i < requests.size(); i = next.fetch_add(1))
          results[i] = ScoreOne(requests[i], child);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

 private:
  absl::Status Restart(std::unique_ptr<process::ChildProcess>& child) {
    child.reset();
    ASSIGN_OR_RETURN(child, spawner_.Spawn(child_options_));
    return absl::OkStatus();
  }

  RewardResult ScoreOne(const RewardRequest& request, std::unique_ptr<process::ChildProcess>& child) {
    RewardResult result;
    for (int attempt = 1; attempt <= options_.max_attempts; ++attempt) {
      result = RewardResult();
      const absl::Status status = Ask(request, child, result);
      if (status.ok()) return result;
      result.error = Message(status);
      LogWarning(absl::StrCat("reward process for ", request.id, ": ", status.message(), "; it is started again"));
      const absl::Status restarted = Restart(child);
      if (!restarted.ok()) result.error = absl::StrCat(result.error, "; ", restarted.message());
    }
    return result;
  }

  absl::Status Ask(const RewardRequest& request, std::unique_ptr<process::ChildProcess>& child, RewardResult& result) {
    if (child == nullptr) return absl::UnavailableError("the reward process is not running");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.deadline_ms);
    ASSIGN_OR_RETURN(const std::string line, RequestLine(request));
    RETURN_IF_ERROR(child->lines().WriteLine(line, deadline));
    ASSIGN_OR_RETURN(const std::string answer, child->lines().ReadLine(deadline));
    return ReadAnswer(answer, request, options_, result);
  }

  const RewardOptions options_;
  process::Spawner spawner_;
  process::ChildOptions child_options_;
  std::vector<std::unique_ptr<process::ChildProcess>> children_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reward>> MakeProcessReward(const RewardOptions& options) {
  auto reward = std::make_unique<ProcessReward>(options);
  RETURN_IF_ERROR(reward->Start());
  return reward;
}

}  // namespace lockstep::rollout
