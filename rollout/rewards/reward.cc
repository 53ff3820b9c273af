#include "rollout/rewards/reward.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rollout/rewards/builtin_rewards.h"
#include "rollout/rewards/process_reward.h"
#include "runtime/base/status.h"

namespace lockstep::rollout {
namespace {

absl::Status AtLeastOne(const char* name, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("reward.", name, " is ", value, ": it must be at least 1"));
}

}  // namespace

absl::Status Reward::CheckRow(const std::string&) const { return absl::OkStatus(); }

std::vector<RewardResult> SampleReward::Score(absl::Span<const RewardRequest> requests) {
  std::vector<RewardResult> results;
  results.reserve(requests.size());
  for (const RewardRequest& request : requests) {
    absl::StatusOr<RewardResult> result = ScoreSample(request);
    if (result.ok()) {
      results.push_back(*std::move(result));
    } else {
      results.emplace_back().error = Message(result.status());
    }
  }
  return results;
}

absl::Status RewardOptions::Validate() const {
  if (kind == "process" && (command.empty() || command[0].empty())) {
    return absl::InvalidArgumentError(
        "reward.command is empty: a process reward needs a command such as [python3, reward.py]");
  }
  RETURN_IF_ERROR(AtLeastOne("num_processes", num_processes));
  RETURN_IF_ERROR(AtLeastOne("deadline_ms", deadline_ms));
  RETURN_IF_ERROR(AtLeastOne("max_attempts", max_attempts));
  if (!std::isfinite(format_bonus)) {
    return absl::InvalidArgumentError(
        absl::StrCat("reward.format_bonus is ", format_bonus, ": it must be a finite number"));
  }
  for (const auto& [name, weight] : weights) {
    if (!std::isfinite(weight)) {
      return absl::InvalidArgumentError(
          absl::StrCat("reward.weights.", name, " is ", weight, ": it must be a finite number"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Reward>> MakeReward(const RewardOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  if (options.kind == "arithmetic") return MakeArithmeticReward(options);
  if (options.kind == "json_object") return MakeJsonObjectReward(options);
  if (options.kind == "exact_match") return MakeExactMatchReward(options);
  if (options.kind == "process") return MakeProcessReward(options);
  return absl::InvalidArgumentError(
      absl::StrCat("reward.kind is '", options.kind, "': it must be arithmetic, json_object, exact_match or process"));
}

}  // namespace lockstep::rollout
