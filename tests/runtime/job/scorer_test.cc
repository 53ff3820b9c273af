#include "runtime/job/scorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/formats/safetensors.h"
#include "runtime/job/commands.h"
#include "tests/testing/shared_files.h"
#include "tests/testing/status_matchers.h"

namespace lockstep::job {
namespace {

using ::lockstep::testing::SharedPath;
using ::lockstep::testing::SmolModelPath;
using ::lockstep::testing::StatusIs;
using ::testing::HasSubstr;

std::vector<int32_t> IdsOf(const formats::SafetensorsTensor& tensor) {
  std::vector<int32_t> ids(static_cast<size_t>(tensor.num_elements));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (tensor.dtype == formats::SafetensorsDType::kI64) {
      int64_t id;
      std::memcpy(&id, tensor.data + 8 * i, 8);
      ids[i] = static_cast<int32_t>(id);
    } else {
      EXPECT_EQ(tensor.dtype, formats::SafetensorsDType::kI32);
      std::memcpy(&ids[i], tensor.data + 4 * i, 4);
    }
  }
  return ids;
}

double LargestDifference(const std::vector<float>& got, const std::vector<float>& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  if (got.size() != wanted.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - wanted[i]);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

class ScorerGolden : public ::testing::TestWithParam<const char*> {};

// The f32 tolerance is the project's for logits. bf16 has 8 bits: these models' logits lie within a few units, so 0.1
// is some rounding steps and far below what a wrong position or a wrong tensor gives.
TEST_P(ScorerGolden, LogProbsOfReferenceModels) {
  LOCKSTEP_NEEDS_SHARED();
  const std::string folder = SharedPath(absl::StrCat("goldens/models/", GetParam()));
  ASSERT_OK_AND_ASSIGN(const auto golden, formats::SafetensorsFile::Open(folder + "/golden.safetensors"));
  ASSERT_OK_AND_ASSIGN(const auto f32, Scorer::Load(folder, DType::kF32, 2));
  ASSERT_OK_AND_ASSIGN(const auto bf16, Scorer::Load(folder, DType::kBf16, 1));
  int num_cases = 0;
  for (; golden.Find(absl::StrCat("input_ids.", num_cases)) != nullptr; ++num_cases) {
    const std::vector<int32_t> ids = IdsOf(*golden.Find(absl::StrCat("input_ids.", num_cases)));
    const formats::SafetensorsTensor* tensor = golden.Find(absl::StrCat("logprobs.", num_cases));
    ASSERT_NE(tensor, nullptr);
    std::vector<float> wanted(static_cast<size_t>(tensor->num_elements));
    ASSERT_OK(formats::ToFloat(*tensor, wanted.data()));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> got, f32->LogProbs(ids));
    EXPECT_LT(LargestDifference(got, wanted), 1e-4) << "sequence " << num_cases;
    ASSERT_OK_AND_ASSIGN(const std::vector<float> rounded, bf16->LogProbs(ids));
    EXPECT_LT(LargestDifference(rounded, wanted), 0.1) << "sequence " << num_cases;
  }
  EXPECT_EQ(num_cases, 4);
}
INSTANTIATE_TEST_SUITE_P(Models, ScorerGolden, ::testing::Values("llama_tied", "llama_rope3", "qwen2", "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Scorer, LogProbsOfTheQuickstartsModel) {
  LOCKSTEP_NEEDS_SHARED();
  if (SmolModelPath().empty()) GTEST_SKIP() << "SKIPPED: the model is not fetched (scripts/fetch-model)";
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadFile(SharedPath("goldens/models/smollm2/golden.json")));
  ASSERT_OK_AND_ASSIGN(const Json golden, ParseJson(text));
  ASSERT_OK_AND_ASSIGN(const auto scorer, Scorer::Load(SmolModelPath(), DType::kF32, 2));
  int num_cases = 0;
  for (const Json& one : golden["cases"]) {
    auto ids = one["prompt_ids"].get<std::vector<int32_t>>();
    const auto greedy = one["greedy_ids"].get<std::vector<int32_t>>();
    ids.insert(ids.end(), greedy.begin(), greedy.end());
    ASSERT_OK_AND_ASSIGN(const std::vector<float> got, scorer->LogProbs(ids));
    EXPECT_LT(LargestDifference(got, one["logprobs"].get<std::vector<float>>()), 1e-3) << one["prompt"];
    ++num_cases;
  }
  EXPECT_GT(num_cases, 0);
}

TEST(Scorer, ThreadsAndRepetitionChangeNoBit) {
  LOCKSTEP_NEEDS_SHARED();
  const std::string folder = SharedPath("goldens/models/qwen3");
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 100; ++i) ids.push_back((i * 37) % 90);
  ASSERT_OK_AND_ASSIGN(const auto one, Scorer::Load(folder, DType::kBf16, 1));
  ASSERT_OK_AND_ASSIGN(const auto three, Scorer::Load(folder, DType::kBf16, 3));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> first, one->LogProbs(ids));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> prefix, one->LogProbs(absl::MakeConstSpan(ids).first(40)));
  EXPECT_EQ(std::vector<float>(first.begin(), first.begin() + 39), prefix) << "what follows changes no log-prob";
  EXPECT_EQ(*one->LogProbs(ids), first);
  EXPECT_EQ(*three->LogProbs(ids), first);
}

TEST(Scorer, RefusesWhatItCannotScore) {
  LOCKSTEP_NEEDS_SHARED();
  const std::string folder = SharedPath("goldens/models/llama_tied");
  ASSERT_OK_AND_ASSIGN(const auto scorer, Scorer::Load(folder, DType::kF32, 1));
  const auto expect = [&](const std::vector<int32_t>& ids, const char* text) {
    EXPECT_THAT(scorer->LogProbs(ids), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  expect({}, "no ids");
  expect({1, -1}, "id -1 is outside the vocabulary");
  expect({1 << 30}, "outside the vocabulary");
  expect(std::vector<int32_t>(1 << 20, 1), "are too many");
  EXPECT_TRUE(scorer->LogProbs({{1}})->empty());
  EXPECT_FALSE(Scorer::Load(folder + "/none", DType::kF32, 1).ok());
}

TEST(ScoreCommand, AnswersBadLinesAndGoesOn) {
  LOCKSTEP_NEEDS_SHARED();
  std::istringstream in("{\"ids\": [1, 2, 3]}\n{\"ids\": [1, \"2\"]}\n\n{\"ids\": [1], \"x\": 1}\n{\"ids\": [5]}");
  std::ostringstream out;
  const absl::Status status = ScoreCommand({SharedPath("goldens/models/qwen2"), "f32", 1}, in, out);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("3 of 5 lines")));
  EXPECT_EQ(ExitCode(status), 1);
  std::istringstream lines(out.str());
  std::vector<Json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(*ParseJson(line));
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(answers[0]["logprobs"].size(), 2u);
  EXPECT_THAT(answers[1]["error"].get<std::string>(), HasSubstr("line 2: \"ids\" must be a list of token ids"));
  EXPECT_TRUE(answers[2].contains("error"));
  EXPECT_THAT(answers[3]["error"].get<std::string>(), HasSubstr("unknown key \"x\""));
  EXPECT_EQ(answers[4]["logprobs"].size(), 0u);
}

}  // namespace
}  // namespace lockstep::job
