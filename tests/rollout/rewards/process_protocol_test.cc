#include "rollout/rewards/process_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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

TEST(RequestLine, HoldsTheSampleAndTheRowsFields) {
  EXPECT_EQ(*ToRequestLine({"3/1", R"({"messages":[{"role":"user","content":"Hi"}],"answer":"7","k":{"z":[1]}})",
                            "line\nbreak \"quoted\"", "length"}),
            R"({"id":"3/1","messages":[{"role":"user","content":"Hi"}],"completion":"line\nbreak \"quoted\"",)"
            R"("finish_reason":"length","answer":"7","k":{"z":[1]}})");
}

TEST(RequestLine, APromptIsAMessageToo) {
  EXPECT_EQ(
      *ToRequestLine({"1", R"({"prompt":"Hi"})", "x", "stop"}),
      R"({"id":"1","messages":[{"role":"user","content":"Hi"}],"completion":"x","finish_reason":"stop","prompt":"Hi"})");
}

TEST(RequestLine, TheRequestsFieldsHideTheRows) {
  EXPECT_EQ(*ToRequestLine({"1", R"({"id":9,"completion":"gold","finish_reason":0,"messages":[]})", "x", "stop"}),
            R"({"id":"1","messages":[],"completion":"x","finish_reason":"stop"})");
}

TEST(RequestLine, IsAlwaysOneLineOfUtf8) {
  EXPECT_EQ(*ToRequestLine({"1", R"({"messages":[]})", "cut \xe2\x82", "length"}),
            "{\"id\":\"1\",\"messages\":[],\"completion\":\"cut \xef\xbf\xbd\",\"finish_reason\":\"length\"}");
  EXPECT_THAT(ToRequestLine({"1", "[]", "x", "stop"}), StatusIs(kInvalid, HasSubstr("row")));
}

TEST(Answer, IsARewardNamedRewardsOrAnError) {
  ASSERT_OK_AND_ASSIGN(const RewardResult one, ParseAnswer(R"({"id":"1","reward":-0.5,"x":{}})", "1", {}));
  EXPECT_EQ(one.reward, -0.5);
  EXPECT_THAT(one.parts, IsEmpty());
  EXPECT_EQ(one.error, "");
  ASSERT_OK_AND_ASSIGN(const RewardResult named,
                       ParseAnswer(R"({"id":"1","rewards":{"a":1,"b":0.5}})", "1", {{"b", -2}, {"c", 9}}));
  EXPECT_EQ(named.reward, 1 - 2 * 0.5);
  EXPECT_THAT(named.parts, ElementsAre(Pair("a", 1), Pair("b", 0.5)));
  ASSERT_OK_AND_ASSIGN(const RewardResult error, ParseAnswer(R"({"id":"1","error":"why","reward":1})", "1", {}));
  EXPECT_EQ(error.error, "why");
  EXPECT_EQ(error.reward, 0);
  ASSERT_OK_AND_ASSIGN(const RewardResult no_reason, ParseAnswer(R"({"id":"1","error":""})", "1", {}));
  EXPECT_THAT(no_reason.error, HasSubstr("without a reason"));
  ASSERT_OK_AND_ASSIGN(const RewardResult null_error,
                       ParseAnswer(R"({"id":"1","error":null,"rewards":null,"reward":2})", "1", {}));
  EXPECT_EQ(null_error.reward, 2);
  EXPECT_EQ(null_error.error, "");
}

TEST(Answer, NumbersThatAreNotFiniteMakeTheSampleInvalid) {
  for (const char* line :
       {R"({"id": "1", "reward": NaN})", R"({"id": "1", "reward": -Infinity})",
        R"({"id": "1", "rewards": {"a": 1, "b": Infinity}})", R"({"id": "1", "rewards": {"a": 1e308, "b": 1e308}})"}) {
    ASSERT_OK_AND_ASSIGN(const RewardResult result, ParseAnswer(line, "1", {}));
    EXPECT_THAT(result.error, HasSubstr("not a finite number")) << line;
    EXPECT_EQ(result.reward, 0) << line;
    EXPECT_THAT(result.parts, IsEmpty()) << line;
  }
  // Elsewhere, and in texts, they do no harm.
  ASSERT_OK_AND_ASSIGN(const RewardResult beside,
                       ParseAnswer(R"({"id": "NaN \" Infinity", "loss": NaN, "reward": 1})", "NaN \" Infinity", {}));
  EXPECT_EQ(beside.reward, 1);
  EXPECT_EQ(beside.error, "");
}

TEST(Answer, AnythingElseIsNotTrusted) {
  const struct {
    const char* line;
    const char* reason;
  } kCases[] = {
      {"", "not valid JSON"},
      {"Traceback", "Traceback"},
      {"[1]", "not a JSON object"},
      {"1", "not a JSON object"},
      {R"({"reward":1})", "no \"id\""},
      {R"({"id":"2","reward":1})", "is not the request's, '1'"},
      {R"({"id":1,"reward":1})", "is not the request's"},
      {R"({"id":"1"})", "no \"reward\""},
      {R"({"id":"1","reward":null})", "no \"reward\""},
      {R"({"id":"1","reward":"1"})", "\"reward\" is no number"},
      {R"({"id":"1","reward":true})", "\"reward\" is no number"},
      {R"({"id":"1","reward":1e999})", "overflow"},
      {R"({"id":"1","rewards":{}})", "names at least one"},
      {R"({"id":"1","rewards":[1]})", "must be an object"},
      {R"({"id":"1","rewards":{"a":"1"}})", "'a' is no number"},
      {R"({"id":"1","rewards":{"a":null}})", "'a' is no number"},
      {R"({"id":"1","reward":1} {"id":"1","reward":1})", "not valid JSON"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(ParseAnswer(c.line, "1", {}),
                StatusIs(kInvalid, AllOf(HasSubstr("cannot be used"), HasSubstr(c.reason))))
        << c.line;
  }
}

TEST(Answer, WhatAMessageQuotesIsShortAndHarmless) {
  const absl::Status status = ParseAnswer("\x1b[2J" + std::string(100'000, 'x'), "1", {}).status();
  EXPECT_LT(status.message().size(), 300u);
  EXPECT_EQ(status.message().find('\x1b'), absl::string_view::npos);
}

}  // namespace
}  // namespace lockstep::rollout
