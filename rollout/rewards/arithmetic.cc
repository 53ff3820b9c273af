#include <utility>

#include "absl/strings/str_cat.h"
#include "rollout/rewards/builtin_rewards.h"
#include "rollout/rewards/text_fields.h"
#include "runtime/base/status.h"

namespace lockstep::rollout {
namespace {

// Correct if the last number of the completion is the answer: models reason first and conclude at the end.
class ArithmeticReward final : public SampleReward {
 public:
  explicit ArithmeticReward(const RewardOptions& options)
      : answer_field_(options.answer_field), format_bonus_(options.format_bonus) {}

  absl::Status CheckRow(const std::string& row_json) const override { return Answer(row_json).status(); }

 private:
  absl::StatusOr<std::string> Answer(const std::string& row_json) const {
    ASSIGN_OR_RETURN(const std::string text, AnswerOf(row_json, answer_field_));
    Number answer = LastNumber(text);
    if (answer.whole) return std::move(answer.canonical);
    return absl::InvalidArgumentError(absl::StrCat("\"", answer_field_, "\" of the row is not a number"));
  }

  absl::StatusOr<RewardResult> ScoreSample(const RewardRequest& request) const override {
    ASSIGN_OR_RETURN(const std::string answer, Answer(request.row_json));
    const Number number = LastNumber(Trim(request.completion));
    const bool correct = number.canonical == answer;
    RewardResult result;
    result.reward = correct ? 1 : 0;
    result.parts["correct"] = result.reward;
    if (format_bonus_ == 0) return result;
    const bool alone = correct && number.whole;
    result.parts["alone"] = alone ? 1 : 0;
    if (alone) result.reward += format_bonus_;
    return result;
  }

  const std::string answer_field_;
  const double format_bonus_;
};

}  // namespace

std::unique_ptr<Reward> MakeArithmeticReward(const RewardOptions& options) {
  return std::make_unique<ArithmeticReward>(options);
}

}  // namespace lockstep::rollout
