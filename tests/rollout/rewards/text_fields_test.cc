#include "rollout/rewards/text_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/status_matchers.h"

namespace lockstep::rollout {
namespace {

using ::lockstep::testing::StatusIs;
using ::testing::HasSubstr;

TEST(TextFields, TrimTakesWhiteSpaceFromBothEnds) {
  EXPECT_EQ(Trim(" \t\r\n a b \n"), "a b");
  EXPECT_EQ(Trim(" \n"), "");
  EXPECT_EQ(Trim(""), "");
}

TEST(TextFields, LastNumberIsCanonical) {
  const struct {
    const char* text;
    const char* canonical;
    bool whole;
  } kCases[] = {
      {"7", "7", true},
      {"", "", false},
      {"none here", "", false},
      {"The answer is 7.", "7", false},
      {"3 + 4 = 7", "7", false},
      {"7 is 3 + 4", "4", false},
      {"**12**", "12", false},
      {"x7", "7", false},
      // Signs.
      {"-4", "-4", true},
      {"= -4", "-4", false},
      {"3-4", "4", false},
      {"(3)-4", "4", false},
      {"3 - 4", "4", false},
      {"\xe2\x88\x92"
       "4",
       "-4", true},
      {"3\xe2\x88\x92"
       "4",
       "4", false},
      {"-0", "0", true},
      // Fractions.
      {"3.5", "3.5", true},
      {"3.50", "3.5", true},
      {"7.0", "7", true},
      {"-0.0", "0", true},
      {"3.", "3", false},
      {"1.2.3", "3", false},
      // Leading zeros and groups.
      {"007", "7", true},
      {"0", "0", true},
      {"00", "0", true},
      {"1,234", "1234", true},
      {"-12,345,678.25", "-12345678.25", true},
      {"1,2", "2", false},
      {"1,23", "23", false},
      {"1,2345", "2345", false},
      {"1234,567", "567", false},
      {"1, 234", "234", false},
      {"so 1,000, or", "1000", false},
      // Longer than any machine number.
      {"123456789012345678901234567890", "123456789012345678901234567890", true},
  };
  for (const auto& c : kCases) {
    const Number number = LastNumber(c.text);
    EXPECT_EQ(number.canonical, c.canonical) << c.text;
    EXPECT_EQ(number.whole, c.whole) << c.text;
  }
}

TEST(TextFields, AnswersAreTextsOrNumbers) {
  EXPECT_EQ(*AnswerOf(R"({"answer": " seven "})", "answer"), "seven");
  EXPECT_EQ(*AnswerOf(R"({"gold": 7})", "gold"), "7");
  EXPECT_EQ(*AnswerOf(R"({"gold": -2.5})", "gold"), "-2.5");
  EXPECT_THAT(AnswerOf(R"({"gold": 7})", "answer"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no \"answer\"")));
  for (const char* row : {R"({"answer": null})", R"({"answer": [7]})", R"({"answer": true})"}) {
    EXPECT_THAT(AnswerOf(row, "answer"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("neither"))) << row;
  }
  EXPECT_THAT(AnswerOf(R"({"answer": " "})", "answer"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty")));
}

}  // namespace
}  // namespace lockstep::rollout
