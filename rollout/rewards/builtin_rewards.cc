#include "rollout/rewards/builtin_rewards.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/json.h"
#include "runtime/base/status.h"

namespace lockstep::rollout {
namespace {

std::string Trim(const std::string& text) {
  size_t begin = 0, end = text.size();
  while (begin < end && std::isspace(static_cast<unsigned char>(text[begin]))) ++begin;
  while (end > begin && std::isspace(static_cast<unsigned char>(text[end - 1]))) --end;
  return text.substr(begin, end - begin);
}

// The row's answer as text: a string as it is, a number as JSON writes it.
absl::StatusOr<std::string> AnswerOf(const RewardRequest& request, const std::string& field) {
  ASSIGN_OR_RETURN(const Json row, ParseJson(request.row_json));
  if (!row.is_object() || !row.contains(field))
    return absl::InvalidArgumentError(absl::StrCat("the row has no \"", field, "\""));
  const Json& answer = row[field];
  return answer.is_string() ? answer.get<std::string>() : DumpJson(answer);
}

// Scores each request by itself.
class EachReward : public Reward {
 public:
  std::vector<RewardResult> Score(absl::Span<const RewardRequest> requests) override {
    std::vector<RewardResult> results;
    for (const RewardRequest& request : requests) {
      RewardResult result;
      const absl::Status status = ScoreOne(request, result);
      if (!status.ok()) result.error = Message(status);
      results.push_back(std::move(result));
    }
    return results;
  }

 private:
  virtual absl::Status ScoreOne(const RewardRequest& request, RewardResult& result) = 0;
};

// The last run of digits, with its sign if one stands directly before it and no digit or letter before that.
std::string LastNumber(const std::string& text) {
  size_t end = text.size();
  while (end > 0 && !std::isdigit(static_cast<unsigned char>(text[end - 1]))) --end;
  size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1]))) --begin;
  if (begin == end) return "";
  const bool minus =
      begin > 0 && text[begin - 1] == '-' && (begin == 1 || !std::isalnum(static_cast<unsigned char>(text[begin - 2])));
  return text.substr(minus ? begin - 1 : begin, end - begin + (minus ? 1 : 0));
}

class ArithmeticReward final : public EachReward {
 public:
  explicit ArithmeticReward(const RewardOptions& options) : options_(options) {}

 private:
  absl::Status ScoreOne(const RewardRequest& request, RewardResult& result) override {
    ASSIGN_OR_RETURN(const std::string answer, AnswerOf(request, options_.answer_field));
    const bool correct = LastNumber(request.completion) == answer;
    const bool alone = Trim(request.completion) == answer;
    result.parts["correct"] = correct ? 1 : 0;
    if (options_.format_bonus != 0) result.parts["alone"] = alone ? 1 : 0;
    result.reward = (correct ? 1.0 : 0.0) + (alone ? options_.format_bonus : 0.0);
    return absl::OkStatus();
  }
  const RewardOptions options_;
};

class JsonObjectReward final : public EachReward {
 private:
  absl::Status ScoreOne(const RewardRequest& request, RewardResult& result) override {
    ASSIGN_OR_RETURN(const Json row, ParseJson(request.row_json));
    const absl::StatusOr<Json> object = ParseJson(Trim(request.completion));
    bool good = object.ok() && object->is_object();
    if (good && row.contains("required_keys") && row["required_keys"].is_array()) {
      for (const Json& key : row["required_keys"])
        good = good && key.is_string() && object->contains(key.get<std::string>());
    }
    result.reward = good ? 1 : 0;
    return absl::OkStatus();
  }
};

class ExactMatchReward final : public EachReward {
 public:
  ExactMatchReward(const RewardOptions& options, pcre2_code* code) : options_(options), code_(code) {}
  ~ExactMatchReward() override { pcre2_code_free(code_); }

 private:
  // The last match counts: models state their answer at the end.
  std::string Extract(const std::string& text) const {
    if (code_ == nullptr) return Trim(text);
    pcre2_match_data* match = pcre2_match_data_create_from_pattern(code_, nullptr);
    std::string found;
    for (size_t at = 0; at <= text.size();) {
      const int count =
          pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, 0, match, nullptr);
      if (count < 0) break;
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match);
      const int group = count > 1 && ends[2] != PCRE2_UNSET ? 1 : 0;
      found = text.substr(ends[2 * group], ends[2 * group + 1] - ends[2 * group]);
      at = ends[1] > at ? ends[1] : at + 1;
    }
    pcre2_match_data_free(match);
    return Trim(found);
  }

  absl::Status ScoreOne(const RewardRequest& request, RewardResult& result) override {
    ASSIGN_OR_RETURN(const std::string answer, AnswerOf(request, options_.answer_field));
    result.reward = Extract(request.completion) == Trim(answer) ? 1 : 0;
    return absl::OkStatus();
  }

  const RewardOptions options_;
  pcre2_code* code_;
};

}  // namespace

std::unique_ptr<Reward> MakeArithmeticReward(const RewardOptions& options) {
  return std::make_unique<ArithmeticReward>(options);
}
std::unique_ptr<Reward> MakeJsonObjectReward(const RewardOptions&) { return std::make_unique<JsonObjectReward>(); }

absl::StatusOr<std::unique_ptr<Reward>> MakeExactMatchReward(const RewardOptions& options) {
  if (options.regex.empty()) return std::make_unique<ExactMatchReward>(options, nullptr);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(options.regex.data()), options.regex.size(),
                                   PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    return absl::InvalidArgumentError(absl::StrCat(
        "reward.regex '", options.regex, "' is not usable: ", reinterpret_cast<char*>(message), " at ", offset));
  }
  return std::make_unique<ExactMatchReward>(options, code);
}

}  // namespace lockstep::rollout
