#include "runtime/job/make_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "rollout/rewards/reward.h"
#include "runtime/base/json.h"
#include "runtime/source/prompt_source.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::job {
namespace {

using ::lockstep::testing::StatusIs;
using ::lockstep::testing::TempDir;
using ::testing::HasSubstr;

std::string Text(const MakeDataOptions& options) {
  std::ostringstream out;
  EXPECT_OK(MakeData(options, out));
  return out.str();
}

std::vector<std::string> Lines(const MakeDataOptions& options) {
  std::istringstream text(Text(options));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

using Pair = std::pair<int, int>;

// Operands of a row whose answer is their sum.
Pair Operands(const std::string& line) {
  const Json row = Json::parse(line);
  const std::string question = row["messages"][0]["content"];
  int a = 0, b = 0;
  EXPECT_EQ(std::sscanf(question.c_str(), "What is %d + %d? Reply with the number only.", &a, &b), 2) << line;
  EXPECT_EQ(row["answer"], std::to_string(a + b)) << line;
  return {a, b};
}

TEST(MakeData, ARowIsAQuestionWithItsAnswer) {
  EXPECT_THAT(
      Lines({.task = "arithmetic", .rows = 1})[0],
      ::testing::MatchesRegex(R"(\{"messages":\[\{"role":"user","content":"What is [1-9] \+ [1-9]\? Reply with )"
                              R"(the number only\."\}\],"answer":"[0-9]+"\})"));
}

TEST(MakeData, TheSplitsCoverAllSumsAndShareNone) {
  std::set<Pair> train, test;
  for (const std::string& line : Lines({.task = "arithmetic", .rows = 2'000})) train.insert(Operands(line));
  for (const std::string& line : Lines({.task = "arithmetic", .rows = 2'000, .split = "test"})) {
    test.insert(Operands(line));
  }
  EXPECT_EQ(train.size() + test.size(), 81u);
  for (const Pair& pair : test) EXPECT_EQ(train.count(pair), 0u);
  // About a fifth of 81. The split belongs to every figure that was ever published: it never changes.
  EXPECT_EQ(test, (std::set<Pair>{{1, 3},
                                  {1, 9},
                                  {2, 1},
                                  {2, 5},
                                  {3, 5},
                                  {3, 8},
                                  {4, 9},
                                  {5, 4},
                                  {5, 6},
                                  {5, 9},
                                  {6, 8},
                                  {7, 3},
                                  {7, 7},
                                  {8, 3},
                                  {8, 5},
                                  {8, 7},
                                  {9, 7}}));
  for (int a = 1; a <= 9; ++a) {
    for (int b = 1; b <= 9; ++b) EXPECT_EQ(IsTestPair(a, b), test.count({a, b}) == 1);
  }
}

// 2,000 draws over the training pairs: no pair is far from its share (5 standard deviations).
TEST(MakeData, RowsAreDrawnUniformly) {
  std::map<Pair, int> counts;
  for (const std::string& line : Lines({.task = "arithmetic", .rows = 2'000, .seed = 3})) ++counts[Operands(line)];
  const double share = 2'000.0 / static_cast<double>(counts.size());
  for (const auto& [pair, count] : counts) EXPECT_NEAR(count, share, 5 * std::sqrt(share));
}

TEST(MakeData, ARowDependsOnSeedAndPlaceAlone) {
  for (const char* task : {"arithmetic", "json_object"}) {
    const std::string few = Text({.task = task, .rows = 10}), many = Text({.task = task, .rows = 20});
    EXPECT_EQ(many.substr(0, few.size()), few);
    EXPECT_NE(Text({.task = task, .rows = 10, .seed = 2}), few);
  }
}

TEST(MakeData, LargerOperandsAreAsked) {
  int largest = 0;
  for (const char* split : {"train", "test"}) {
    for (const std::string& line : Lines({.task = "arithmetic", .rows = 500, .split = split, .max_operand = 99})) {
      const auto [a, b] = Operands(line);
      EXPECT_EQ(IsTestPair(a, b), split == std::string("test"));
      EXPECT_LE(std::max(a, b), 99);
      largest = std::max({largest, a, b});
    }
  }
  EXPECT_GT(largest, 90);
}

TEST(MakeData, DescriptionsOfTheTwoSplitsShareNoThing) {
  const auto things = [](const std::string& split) {
    std::set<std::string> found;
    for (const std::string& line : Lines({.task = "json_object", .rows = 300, .split = split})) {
      const Json row = Json::parse(line);
      EXPECT_EQ(row["required_keys"].size(), 2u);
      EXPECT_NE(row["required_keys"][0], row["required_keys"][1]);
      const std::string question = row["messages"][0]["content"];
      for (const Json& key : row["required_keys"]) EXPECT_THAT(question, HasSubstr(key.dump()));
      found.insert(question.substr(0, question.find(" as one")));
    }
    return found;
  };
  const std::set<std::string> train = things("train"), test = things("test");
  EXPECT_EQ(train.size(), 5u);
  EXPECT_EQ(test.size(), 5u);
  for (const std::string& thing : test) EXPECT_EQ(train.count(thing), 0u) << thing;
}

// What is made is what the run reads and rewards.
TEST(MakeData, RowsSuitTheirSourceAndReward) {
  TempDir dir;
  for (const char* task : {"arithmetic", "json_object"}) {
    ASSERT_OK_AND_ASSIGN(source::PromptSource source,
                         source::PromptSource::Open({{dir.Write("data.jsonl", Text({.task = task, .rows = 50}))}}));
    ASSERT_EQ(source.num_rows(), 50);
    rollout::RewardOptions options;
    options.kind = task;
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<rollout::Reward> reward, rollout::MakeReward(options));
    for (int64_t i = 0; i < 50; ++i) EXPECT_OK(reward->CheckRow(source.At(i).row_json));
  }
}

TEST(MakeData, BadOptionsAreNamed) {
  std::ostringstream out;
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(MakeData({.task = "poetry"}, out), StatusIs(kInvalid, HasSubstr("unknown task poetry")));
  EXPECT_THAT(MakeData({.task = "arithmetic", .rows = 0}, out), StatusIs(kInvalid, HasSubstr("--rows is 0")));
  EXPECT_THAT(MakeData({.task = "arithmetic", .split = "dev"}, out), StatusIs(kInvalid, HasSubstr("--split is dev")));
  EXPECT_THAT(MakeData({.task = "arithmetic", .max_operand = 2}, out),
              StatusIs(kInvalid, HasSubstr("--max-operand is 2")));
  EXPECT_EQ(out.str(), "");
}

TEST(MakeData, AnOutputThatIsFullIsAnError) {
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  EXPECT_THAT(MakeData({.task = "arithmetic"}, out), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("output")));
}

}  // namespace
}  // namespace lockstep::job
