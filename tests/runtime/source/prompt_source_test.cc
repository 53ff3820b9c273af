#include "runtime/source/prompt_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::source {
namespace {

using ::lockstep::testing::StatusIs;
using ::lockstep::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGood[] = "{\"prompt\": \"Hi\"}\n";

std::string NumberedRows(int begin, int end) {
  std::string rows;
  for (int i = begin; i < end; ++i) absl::StrAppend(&rows, "{\"prompt\":\"", i, "\",\"answer\":", i, "}\n");
  return rows;
}

int NumberOf(const Prompt& prompt) { return ParseJson(prompt.row_json)->at("answer").get<int>(); }

std::vector<int> Take(PromptSource& source, int64_t begin, int64_t end) {
  std::vector<int> numbers;
  for (int64_t ordinal = begin; ordinal < end; ++ordinal) numbers.push_back(NumberOf(source.At(ordinal)));
  return numbers;
}

class PromptSourceTest : public ::testing::Test {
 protected:
  PromptSource Numbers(int rows, uint64_t seed, bool shuffle = true) {
    absl::StatusOr<PromptSource> source =
        PromptSource::Open({{dir_.Write("numbers.jsonl", NumberedRows(0, rows))}, shuffle, seed});
    CHECK(source.ok());
    return *std::move(source);
  }
  TempDir dir_;
};

TEST_F(PromptSourceTest, BadRowsAreErrorsThatNameFileAndLine) {
  const struct {
    const char* row;
    const char* message;
  } kCases[] = {
      {"", "the line is empty"},
      {"{\"prompt\": ", "not valid JSON"},
      {"[1]", "not a JSON object"},
      {"{\"prompt\": \"\xff\"}", "not valid UTF-8"},
      {"{\"answer\": \"7\"}", "neither \"messages\" nor \"prompt\""},
      {"{\"prompt\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}", "both \"messages\" and"},
      {"{\"prompt\": 7}", "\"prompt\" must be a text"},
      {"{\"prompt\": \"\"}", "\"prompt\" is empty"},
      {"{\"messages\": []}", "not empty"},
      {"{\"messages\": \"Hi\"}", "must be a list"},
      {"{\"messages\": [\"Hi\"]}", "message 0 is not an object"},
      {"{\"messages\": [{\"content\": \"Hi\"}]}", "message 0 has no \"role\""},
      {"{\"messages\": [{\"role\": \"\", \"content\": \"Hi\"}]}", "message 0 has a \"role\" that is not a name"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"user\"}]}",
       "message 1 has no \"content\""},
      {"{\"messages\": [{\"role\": \"user\", \"content\": null}]}", "message 0 has no \"content\""},
      {"{\"messages\": [{\"role\": \"user\", \"content\": 7}]}", "neither a text nor a list of parts"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": [\"a\"]}]}", "neither a text nor a list of parts"},
  };
  const std::string good = dir_.Write("good.jsonl", kGood);
  for (const auto& c : kCases) {
    const std::string bad = dir_.Write("bad.jsonl", absl::StrCat(kGood, c.row, "\n", kGood));
    EXPECT_THAT(PromptSource::Open({{good, bad}}),
                StatusIs(absl::StatusCode::kInvalidArgument, AllOf(StartsWith(bad + ":2: "), HasSubstr(c.message))))
        << c.row;
  }
}

TEST_F(PromptSourceTest, FilesWithoutRowsAreErrors) {
  const std::string good = dir_.Write("good.jsonl", kGood), empty = dir_.Write("empty.jsonl", "");
  EXPECT_THAT(PromptSource::Open({}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no data files")));
  EXPECT_THAT(PromptSource::Open({{good, empty}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(empty + " holds no rows")));
  EXPECT_THAT(PromptSource::Open({{good, dir_.File("none")}}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(dir_.File("none"))));
}

TEST_F(PromptSourceTest, RowsPassThroughWithTheirFieldsAndLocation) {
  const std::string first = dir_.Write(
      "a.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"é 你\"}],\"z\":{\"k\":[1,2.5]},\"a\":null}\r\n" +
                     std::string(kGood));
  const std::string second = dir_.Write("b.jsonl", R"({"messages":[{"role":"assistant","tool_calls":[{}]},)"
                                                   R"({"role":"user","content":[{"type":"text","text":"x"}]}]})");
  ASSERT_OK_AND_ASSIGN(PromptSource source, PromptSource::Open({{first, second}, /*shuffle=*/false}));
  ASSERT_EQ(source.num_rows(), 3);
  const Prompt prompt = source.At(0);
  EXPECT_EQ(prompt.ordinal, 0);
  EXPECT_EQ(prompt.row_json,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"é 你\"}],\"z\":{\"k\":[1,2.5]},\"a\":null}");
  EXPECT_EQ(prompt.location, first + ":1");
  EXPECT_EQ(source.At(1).location, first + ":2");
  EXPECT_EQ(source.At(2).location, second + ":1");
}

TEST_F(PromptSourceTest, WithoutShufflingEveryEpochKeepsTheOrderOfTheFiles) {
  PromptSource source = Numbers(3, 1, /*shuffle=*/false);
  EXPECT_THAT(Take(source, 0, 7), ElementsAre(0, 1, 2, 0, 1, 2, 0));
}

TEST_F(PromptSourceTest, AnEpochHoldsEveryRowOnceAndItsOwnOrder) {
  PromptSource source = Numbers(50, 7);
  std::set<std::vector<int>> orders;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const std::vector<int> order = Take(source, epoch * 50, (epoch + 1) * 50);
    EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), 50u);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 20u);
}

TEST_F(PromptSourceTest, APromptDependsOnSeedAndOrdinalAlone) {
  PromptSource straight = Numbers(10, 3);
  const std::vector<int> all = Take(straight, 0, 60);
  for (const int64_t from : {0, 1, 9, 10, 37, 59}) {
    PromptSource resumed = Numbers(10, 3);
    EXPECT_EQ(Take(resumed, from, 60), std::vector<int>(all.begin() + from, all.end())) << from;
  }
  PromptSource backward = Numbers(10, 3);
  for (int64_t ordinal = 59; ordinal >= 0; --ordinal) {
    const Prompt prompt = backward.At(ordinal);
    EXPECT_EQ(prompt.ordinal, ordinal);
    EXPECT_EQ(NumberOf(prompt), all[ordinal]);
  }
  PromptSource other_seed = Numbers(10, 4);
  EXPECT_NE(Take(other_seed, 0, 60), all);
}

// Computed by a second implementation of Philox. A run that is continued under a newer program must see the same rows:
// the order is part of the bits.
TEST_F(PromptSourceTest, OrdersNeverChangeBetweenVersions) {
  PromptSource source = Numbers(8, 1);
  EXPECT_THAT(Take(source, 0, 16), ElementsAre(5, 7, 6, 4, 3, 1, 2, 0, 0, 7, 6, 2, 1, 3, 5, 4));
}

// 24 permutations of 4 rows over 24,000 epochs: chi square with 23 degrees of freedom exceeds 58 once in 10,000
// seeds.
TEST_F(PromptSourceTest, EveryOrderIsEquallyLikely) {
  PromptSource source = Numbers(4, 11);
  std::map<std::vector<int>, int> counts;
  for (int64_t epoch = 0; epoch < 24'000; ++epoch) ++counts[Take(source, epoch * 4, epoch * 4 + 4)];
  ASSERT_EQ(counts.size(), 24u);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 58);
}

}  // namespace
}  // namespace lockstep::source
