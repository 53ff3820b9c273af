#include "runtime/job/sample_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/job/sampler.h"
#include "runtime/job/scorer.h"
#include "tests/testing/shared_files.h"
#include "tests/testing/status_matchers.h"

namespace lockstep::job {
namespace {

using ::lockstep::testing::SharedPath;
using ::lockstep::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Messages are ids already, and text is the ids again.
class IdCodec : public PromptCodec {
 public:
  absl::StatusOr<std::vector<int32_t>> PromptIds(const Json& messages) const override {
    if (!messages.is_array()) return absl::InvalidArgumentError("messages must be a list");
    return messages.get<std::vector<int32_t>>();
  }
  std::string Text(absl::Span<const int32_t> ids) const override { return absl::StrJoin(ids, " "); }
};

class SampleStream : public ::testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_SHARED();
    folder_ = SharedPath("goldens/models/qwen3");
    SamplerOptions options;
    options.threads = 1;
    options.max_batch = 4;
    absl::StatusOr<std::unique_ptr<Sampler>> sampler = Sampler::Load(folder_, options, nullptr);
    ASSERT_OK(sampler);
    sampler_ = *std::move(sampler);
  }

  // The answers to some lines; the status of the whole stream goes to status_.
  std::vector<Json> Answers(const std::string& lines) {
    std::istringstream in(lines);
    std::ostringstream out;
    SampleStreamOptions options;
    options.max_waiting_lines = 3;  // less than the tests send
    status_ = ServeSamples(sampler_->engine(), IdCodec(), options, in, out);
    std::vector<Json> answers;
    std::istringstream text(out.str());
    for (std::string line; std::getline(text, line);) answers.push_back(*ParseJson(line));
    return answers;
  }

  std::string folder_;
  std::unique_ptr<Sampler> sampler_;
  absl::Status status_;
};

TEST_F(SampleStream, AnswersInOrderOneLineASample) {
  const std::vector<Json> answers = Answers(
      "{\"ids\": [1, 2, 3], \"max_tokens\": 30, \"n\": 3}\n"
      "{\"ids\": [4], \"max_tokens\": 1}\n"
      "{\"messages\": [7, 8], \"max_tokens\": 5, \"min_tokens\": 5, \"seed\": 9}\n"
      "{\"ids\": [1, 2, 3], \"max_tokens\": 2, \"temperature\": 0}\n"
      "{\"ids\": [1, 2, 3], \"max_tokens\": 2, \"temperature\": 0}\n");
  EXPECT_OK(status_);
  ASSERT_THAT(answers, SizeIs(7));
  const std::vector<size_t> lengths = {30, 30, 30, 1, 5, 2, 2};
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_THAT(answers[i]["ids"], SizeIs(lengths[i])) << i;
    EXPECT_THAT(answers[i]["logprobs"], SizeIs(lengths[i])) << i;
    EXPECT_EQ(answers[i]["finish_reason"], "length");
    EXPECT_EQ(answers[i]["text"], absl::StrJoin(answers[i]["ids"].get<std::vector<int>>(), " "));
  }
  EXPECT_NE(answers[0]["ids"], answers[1]["ids"]) << "samples of one prompt differ";
  EXPECT_EQ(answers[5], answers[6]) << "greedy is greedy";
}

TEST_F(SampleStream, ARequestsAnswerDependsOnItAlone) {
  const std::string line = "{\"ids\": [5, 6, 7], \"max_tokens\": 20, \"seed\": 3}\n";
  const std::vector<Json> alone = Answers(line);
  std::string crowd;
  for (int i = 0; i < 9; ++i) crowd += absl::StrCat("{\"ids\": [", i + 1, "], \"max_tokens\": ", 3 * i + 1, "}\n");
  const std::vector<Json> among = Answers(crowd + line + crowd);
  ASSERT_THAT(alone, SizeIs(1));
  ASSERT_THAT(among, SizeIs(19));
  EXPECT_EQ(among[9], alone[0]);
  const std::vector<Json> other = Answers("{\"ids\": [5, 6, 7], \"max_tokens\": 20, \"seed\": 4}\n");
  EXPECT_NE(other[0]["ids"], alone[0]["ids"]) << "another seed, another sample";
}

TEST_F(SampleStream, ScoreGivesTheBitsThatSamplingReported) {
  const std::vector<Json> answers = Answers("{\"ids\": [5, 6, 7], \"max_tokens\": 40, \"seed\": 3}\n");
  ASSERT_THAT(answers, SizeIs(1));
  std::vector<int32_t> ids = {5, 6, 7};
  for (const Json& id : answers[0]["ids"]) ids.push_back(id.get<int32_t>());
  ASSERT_OK_AND_ASSIGN(const auto scorer, Scorer::Load(folder_, DType::kF32, 2));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> scored, scorer->LogProbs(ids));
  const auto sampled = answers[0]["logprobs"].get<std::vector<float>>();
  EXPECT_EQ(std::vector<float>(scored.begin() + 2, scored.end()), sampled);
}

TEST_F(SampleStream, BadLinesAreAnsweredAndTheStreamGoesOn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"nonsense", "not valid JSON"},
      {"", "line 2"},
      {"{}", "either \\\"messages\\\" or \\\"ids\\\""},
      {"{\"ids\": [1], \"messages\": [1]}", "either \\\"messages\\\" or \\\"ids\\\""},
      {"{\"ids\": []}", "prompt is empty"},
      {"{\"ids\": [99999999]}", "outside the vocabulary"},
      {"{\"ids\": [1], \"temprature\": 1}", "did you mean temperature?"},
      {"{\"ids\": [1], \"temperature\": -1}", "temperature is -1"},
      {"{\"ids\": [1], \"top_p\": \"1\"}", "\\\"top_p\\\" must be a number"},
      {"{\"ids\": [1], \"max_tokens\": 0}", "max_tokens"},
      {"{\"ids\": [1], \"max_tokens\": 18446744073709551615}", "max_tokens"},
      {"{\"ids\": [1], \"n\": 0}", "\\\"n\\\" must be a whole number from 1"},
      {"{\"ids\": [1], \"stop\": \"x\"}", "\\\"stop\\\" must be a list of texts"},
      {"{\"messages\": 3}", "messages must be a list"},
  };
  std::string lines;
  for (const auto& [line, error] : cases) lines += line + "\n";
  const std::vector<Json> answers = Answers(lines + "{\"ids\": [1], \"max_tokens\": 2}\n");
  EXPECT_THAT(status_, StatusIs(absl::StatusCode::kAborted, HasSubstr("14 of 15 lines")));
  ASSERT_THAT(answers, SizeIs(15));
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_THAT(answers[i].dump(), HasSubstr(cases[i].second)) << cases[i].first;
    EXPECT_TRUE(answers[i].contains("error"));
  }
  EXPECT_THAT(answers.back()["ids"], SizeIs(2));
}

}  // namespace
}  // namespace lockstep::job
