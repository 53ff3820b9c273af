#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rollout/rewards/builtin_rewards.h"
#include "rollout/rewards/text_fields.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace lockstep::rollout {
namespace {

struct FreePcre {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, FreePcre>;
using MatchData = std::unique_ptr<pcre2_match_data, FreePcre>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreePcre>;

// Steps that one match may take. An expression that backtracks without end costs its sample, not the run: the limit is
// reached in about a tenth of a second.
constexpr uint32_t kMatchLimit = 10'000'000;

PCRE2_SPTR Bytes(const std::string& text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string ErrorText(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<char*>(text);
}

// The next character's place: a search never starts inside a UTF-8 sequence.
size_t NextCharacter(const std::string& text, size_t at) {
  do ++at;
  while (at < text.size() && (text[at] & 0xc0) == 0x80);
  return at;
}

class ExactMatchReward final : public SampleReward {
 public:
  // code == nullptr: the whole trimmed text.
  ExactMatchReward(std::string answer_field, Code code)
      : answer_field_(std::move(answer_field)), code_(std::move(code)) {
    if (code_ == nullptr) return;
    context_.reset(pcre2_match_context_create(nullptr));
    CHECK(context_ != nullptr);
    pcre2_set_match_limit(context_.get(), kMatchLimit);
  }

  absl::Status CheckRow(const std::string& row_json) const override {
    return AnswerOf(row_json, answer_field_).status();
  }

 private:
  absl::StatusOr<RewardResult> ScoreSample(const RewardRequest& request) const override {
    ASSIGN_OR_RETURN(const std::string answer, AnswerOf(request.row_json, answer_field_));
    ASSIGN_OR_RETURN(const std::string found, Extract(request.completion));
    RewardResult result;
    result.reward = found == answer ? 1 : 0;
    return result;
  }

  // Group 1 of the last match if the expression has one that took part, else the match; "" if nothing matches. Empty
  // matches do not count: "\\d*" matches at the end of every text.
  absl::StatusOr<std::string> Extract(const std::string& text) const {
    if (code_ == nullptr) return Trim(text);
    const MatchData match(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    CHECK(match != nullptr);
    std::string found;
    for (size_t at = 0; at <= text.size();) {
      const int count = pcre2_match(code_.get(), Bytes(text), text.size(), at, 0, match.get(), context_.get());
      if (count == PCRE2_ERROR_NOMATCH) break;
      if (count < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("reward.regex cannot be matched with the completion: ", ErrorText(count)));
      }
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
      const int group = count > 1 && ends[2] != PCRE2_UNSET ? 1 : 0;
      const size_t begin = ends[2 * group], end = ends[2 * group + 1];
      if (end > begin) found = text.substr(begin, end - begin);
      at = ends[1] > at ? ends[1] : NextCharacter(text, at);
    }
    return Trim(found);
  }

  const std::string answer_field_;
  const Code code_;
  MatchContext context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reward>> MakeExactMatchReward(const RewardOptions& options) {
  if (options.regex.empty()) return std::make_unique<ExactMatchReward>(options.answer_field, nullptr);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Completions may end inside a character: invalid UTF-8 matches nothing, and is no error.
  Code code(pcre2_compile(Bytes(options.regex), options.regex.size(), PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &error,
                          &offset, nullptr));
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("reward.regex '", options.regex, "' is not usable: ", ErrorText(error), " at byte ", offset));
  }
  return std::make_unique<ExactMatchReward>(options.answer_field, std::move(code));
}

}  // namespace lockstep::rollout
