#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "rollout/rewards/reward.h"
#include "runtime/base/check.h"
#include "tests/testing/status_matchers.h"

namespace lockstep::rollout {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::unique_ptr<Reward> Make(const RewardOptions& options) {
  absl::StatusOr<std::unique_ptr<Reward>> reward = MakeReward(options);
  CHECK(reward.ok());
  return *std::move(reward);
}

RewardResult ScoreOne(const RewardOptions& options, const std::string& row_json, const std::string& completion) {
  const std::vector<RewardRequest> requests = {{"1", row_json, completion, "stop"}};
  return Make(options)->Score(requests).at(0);
}

// Of a sample that is valid.
double RewardOf(const RewardOptions& options, const std::string& row_json, const std::string& completion) {
  const RewardResult result = ScoreOne(options, row_json, completion);
  EXPECT_EQ(result.error, "") << completion;
  return result.reward;
}

RewardOptions Kind(const std::string& kind) {
  RewardOptions options;
  options.kind = kind;
  return options;
}

RewardOptions Regex(const std::string& regex) {
  RewardOptions options = Kind("exact_match");
  options.regex = regex;
  return options;
}

TEST(RewardOptions, DefaultsAreUsableAndBadValuesAreNamed) {
  EXPECT_OK(RewardOptions().Validate());
  RewardOptions options;
  options.num_processes = 0;
  EXPECT_THAT(options.Validate(), StatusIs(kInvalid, AllOf(HasSubstr("reward.num_processes is 0"), HasSubstr("must"))));
  options = RewardOptions();
  options.deadline_ms = -5;
  EXPECT_THAT(options.Validate(), StatusIs(kInvalid, HasSubstr("reward.deadline_ms is -5")));
  options = RewardOptions();
  options.max_attempts = 0;
  EXPECT_THAT(options.Validate(), StatusIs(kInvalid, HasSubstr("reward.max_attempts is 0")));
  options = RewardOptions();
  options.format_bonus = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(options.Validate(), StatusIs(kInvalid, HasSubstr("reward.format_bonus is nan")));
  options = RewardOptions();
  options.weights["style"] = std::numeric_limits<double>::infinity();
  EXPECT_THAT(options.Validate(), StatusIs(kInvalid, HasSubstr("reward.weights.style is inf")));
  EXPECT_THAT(MakeReward(Kind("process")), StatusIs(kInvalid, HasSubstr("reward.command is empty")));
  EXPECT_THAT(MakeReward(Kind("arithmetics")),
              StatusIs(kInvalid, AllOf(HasSubstr("'arithmetics'"), HasSubstr("json_object"))));
}

TEST(ArithmeticReward, TheLastNumberDecides) {
  const RewardOptions options = Kind("arithmetic");
  EXPECT_EQ(RewardOf(options, R"({"answer": "7"})", "3 + 4 = 7."), 1);
  EXPECT_EQ(RewardOf(options, R"({"answer": 7})", "7.0"), 1);
  EXPECT_EQ(RewardOf(options, R"({"answer": "1,200"})", "It is 1200"), 1);
  EXPECT_EQ(RewardOf(options, R"({"answer": "7"})", "7, so 8"), 0);
  EXPECT_EQ(RewardOf(options, R"({"answer": "5"})", "3.5"), 0);
  EXPECT_EQ(RewardOf(options, R"({"answer": "7"})", "-7"), 0);
  EXPECT_EQ(RewardOf(options, R"({"answer": "7"})", "17"), 0);
  EXPECT_EQ(RewardOf(options, R"({"answer": "7"})", ""), 0);
  EXPECT_EQ(RewardOf(options, R"({"answer": "7"})", "seven"), 0);
}

TEST(ArithmeticReward, TheBonusIsForTheRightNumberAlone) {
  RewardOptions options = Kind("arithmetic");
  EXPECT_THAT(ScoreOne(options, R"({"answer": "7"})", "7").parts, ElementsAre(Pair("correct", 1)));
  options.format_bonus = 0.5;
  const RewardResult alone = ScoreOne(options, R"({"answer": "7"})", " 7\n");
  EXPECT_EQ(alone.reward, 1.5);
  EXPECT_THAT(alone.parts, ElementsAre(Pair("alone", 1), Pair("correct", 1)));
  EXPECT_EQ(RewardOf(options, R"({"answer": "7"})", "It is 7"), 1);
  EXPECT_EQ(RewardOf(options, R"({"answer": "7"})", "7."), 1);
  EXPECT_EQ(RewardOf(options, R"({"answer": "7"})", "8"), 0);
}

TEST(ArithmeticReward, RowsWithoutANumberAreKnownBeforehand) {
  RewardOptions options = Kind("arithmetic");
  const std::unique_ptr<Reward> reward = Make(options);
  EXPECT_OK(reward->CheckRow(R"({"answer": "7"})"));
  EXPECT_THAT(reward->CheckRow(R"({"gold": "7"})"), StatusIs(kInvalid, HasSubstr("no \"answer\"")));
  EXPECT_THAT(reward->CheckRow(R"({"answer": "seven"})"), StatusIs(kInvalid, HasSubstr("not a number")));
  EXPECT_THAT(reward->CheckRow(R"({"answer": "3 or 4"})"), StatusIs(kInvalid, HasSubstr("not a number")));
  options.answer_field = "gold";
  EXPECT_OK(Make(options)->CheckRow(R"({"gold": "7"})"));
}

TEST(SampleReward, ABadRowIsItsOwnSamplesErrorOnly) {
  const std::vector<RewardRequest> requests = {
      {"1", R"({"answer": "7"})", "7", "stop"}, {"2", R"({})", "7", "stop"}, {"3", R"({"answer": "8"})", "8", "stop"}};
  const std::vector<RewardResult> results = Make(Kind("arithmetic"))->Score(requests);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].reward, 1);
  EXPECT_THAT(results[1].error, HasSubstr("no \"answer\""));
  EXPECT_EQ(results[1].reward, 0);
  EXPECT_THAT(results[1].parts, IsEmpty());
  EXPECT_EQ(results[2].reward, 1);
  EXPECT_EQ(results[2].error, "");
}

TEST(JsonObjectReward, OneObjectWithTheKeysThatTheRowWants) {
  const RewardOptions options = Kind("json_object");
  EXPECT_EQ(RewardOf(options, "{}", " {\"a\": [1, {}]}\n"), 1);
  EXPECT_EQ(RewardOf(options, "{}", "{}"), 1);
  const std::string deep = std::string(100'000, '[');
  for (const std::string& bad : {std::string(), std::string("7"), std::string("[{}]"), std::string("{} {}"),
                                 std::string("Here: {}"), std::string("{\"a\": 1"), std::string("{'a': 1}"), deep}) {
    EXPECT_EQ(RewardOf(options, "{}", bad), 0) << bad.substr(0, 20);
  }
  const std::string row = R"({"required_keys": ["name", "age"]})";
  EXPECT_EQ(RewardOf(options, row, R"({"age": null, "name": "x", "more": 1})"), 1);
  EXPECT_EQ(RewardOf(options, row, R"({"name": "x"})"), 0);
  EXPECT_THAT(Make(options)->CheckRow(R"({"required_keys": "name"})"), StatusIs(kInvalid, HasSubstr("list of texts")));
  EXPECT_THAT(Make(options)->CheckRow(R"({"required_keys": [1]})"), StatusIs(kInvalid, HasSubstr("list of texts")));
}

TEST(ExactMatchReward, WithoutARegexTheTrimmedTextCounts) {
  const RewardOptions options = Kind("exact_match");
  EXPECT_EQ(RewardOf(options, R"({"answer": "Paris"})", " Paris\n"), 1);
  EXPECT_EQ(RewardOf(options, R"({"answer": " Paris"})", "Paris"), 1);
  EXPECT_EQ(RewardOf(options, R"({"answer": 42})", "42"), 1);
  EXPECT_EQ(RewardOf(options, R"({"answer": "Paris"})", "paris"), 0);
  EXPECT_EQ(RewardOf(options, R"({"answer": "Paris"})", "It is Paris"), 0);
  EXPECT_THAT(Make(options)->CheckRow("{}"), StatusIs(kInvalid, HasSubstr("no \"answer\"")));
}

TEST(ExactMatchReward, TheRegexExtractsItsLastMatch) {
  EXPECT_EQ(RewardOf(Regex("#### (.*)"), R"({"answer": "42"})", "#### 41\nno, #### 42 \nbye"), 1);
  EXPECT_EQ(RewardOf(Regex("#### (.*)"), R"({"answer": "41"})", "#### 41\nno, #### 42"), 0);
  EXPECT_EQ(RewardOf(Regex("[A-D]"), R"({"answer": "C"})", "A or C?"), 1);       // no group: the match
  EXPECT_EQ(RewardOf(Regex("(x)?[0-9]+"), R"({"answer": "12"})", "so 12"), 1);   // the group took no part
  EXPECT_EQ(RewardOf(Regex("[0-9]*"), R"({"answer": "12"})", "12 apples"), 1);   // empty matches do not count
  EXPECT_EQ(RewardOf(Regex("[0-9]*"), R"({"answer": "12"})", "12 äpfel €"), 1);  // and step over whole characters
  EXPECT_EQ(RewardOf(Regex("nowhere"), R"({"answer": "42"})", "42"), 0);
  EXPECT_EQ(RewardOf(Regex("(.)$"), R"({"answer": "é"})", "caf\xc3\xa9"), 1);     // characters, not bytes
  EXPECT_EQ(RewardOf(Regex("[0-9]+"), R"({"answer": "42"})", "42 \xe2\x82"), 1);  // cut inside a character
}

TEST(ExactMatchReward, BadExpressionsAreErrors) {
  EXPECT_THAT(MakeReward(Regex("a(b")),
              StatusIs(kInvalid, AllOf(HasSubstr("'a(b'"), HasSubstr("parenthesis"), HasSubstr("byte 3"))));
}

TEST(ExactMatchReward, EndlessBacktrackingCostsItsSampleOnly) {
  const RewardResult result = ScoreOne(Regex("^(a+)+$"), R"({"answer": "42"})", std::string(200, 'a') + "c");
  EXPECT_THAT(result.error, HasSubstr("match limit exceeded"));
  EXPECT_EQ(result.reward, 0);
}

}  // namespace
}  // namespace lockstep::rollout
