#include "runtime/base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/testing/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

TEST(Json, KeepsTheOrderOfKeys) {
  ASSERT_OK_AND_ASSIGN(const Json value, ParseJson(R"({"z": 1, "a": {"y": [true, null], "b": "text"}})"));
  EXPECT_EQ(DumpJson(value), R"({"z":1,"a":{"y":[true,null],"b":"text"}})");
}

TEST(Json, NumbersKeepTheirBits) {
  const std::string numbers = R"([0,-1,9223372036854775807,18446744073709551615,0.1,1e-320,-0.0])";
  ASSERT_OK_AND_ASSIGN(const Json value, ParseJson(numbers));
  EXPECT_EQ(value.at(2).get<int64_t>(), INT64_MAX);
  EXPECT_EQ(value.at(3).get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(value.at(4).get<double>(), 0.1);
  ASSERT_OK_AND_ASSIGN(const Json again, ParseJson(DumpJson(value)));
  EXPECT_EQ(again, value);
  EXPECT_EQ(again.at(5).get<double>(), 1e-320);
}

TEST(Json, IsStrict) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":1,}", "{a:1}", "'a'", "01", "1 2", "{} x", "nan", "NaN",
                           "Infinity", "// comment\n1", "/* comment */ 1", "\"line\nbreak\"", "\"\\x\"", "tru"}) {
    EXPECT_THAT(ParseJson(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not valid JSON"))) << text;
  }
}

TEST(Json, ErrorsNameTheByte) {
  EXPECT_THAT(ParseJson("[1, x]"), StatusIs(absl::StatusCode::kInvalidArgument, "not valid JSON at byte 5"));
}

TEST(Json, NumbersBeyondDoubleAreErrors) {
  EXPECT_THAT(ParseJson("1e999"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not valid JSON")));
}

TEST(Json, InvalidUtf8IsAnErrorOnTheWayIn) {
  EXPECT_THAT(ParseJson("\"\xff\""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte")));
}

TEST(Json, InvalidUtf8IsReplacedOnTheWayOut) {
  EXPECT_EQ(DumpJson(Json("a\xff"
                          "b")),
            "\"a\xef\xbf\xbd"
            "b\"");
  EXPECT_EQ(DumpJson(Json("\xe2\x82\xac")), "\"\xe2\x82\xac\"");
}

TEST(Json, EscapesComeBack) {
  const std::string text = std::string("quote \" backslash \\ newline \n zero ") + '\0' + " bell \a";
  ASSERT_OK_AND_ASSIGN(const Json value, ParseJson(DumpJson(Json(text))));
  EXPECT_EQ(value.get<std::string>(), text);
  ASSERT_OK_AND_ASSIGN(const Json emoji, ParseJson(R"("\ud83d\ude00")"));
  EXPECT_EQ(emoji.get<std::string>(), "\xf0\x9f\x98\x80");
}

std::string Nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, DepthIsLimited) {
  EXPECT_OK(ParseJson(Nested(512)));
  EXPECT_THAT(ParseJson(Nested(513)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deeper than 512")));
  EXPECT_THAT(ParseJson(std::string(10000000, '[')), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deeper")));
  // Width is not depth, nor are brackets in texts.
  std::string wide = "[";
  for (int i = 0; i < 1000; ++i) wide += "[],";
  EXPECT_OK(ParseJson(wide + "\"" + std::string(1000, '[') + "\\\"[\"]"));
}

}  // namespace
}  // namespace lockstep
