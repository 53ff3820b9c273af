// The user's side is reward_for_tests.py: it does what each completion says.
#include "rollout/rewards/process_reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::rollout {
namespace {

using ::lockstep::testing::StatusIs;
using ::lockstep::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class ProcessRewardTest : public ::testing::Test {
 protected:
  RewardOptions Options() const {
    RewardOptions options;
    options.kind = "process";
    options.command = {"python3", LOCKSTEP_TEST_REWARD, dir_.path()};
    options.shim = {LOCKSTEP_CHILD_EXEC_PATH, "child-exec"};
    // A sanitized or busy machine may take seconds to start Python; only tests of stalls wait for a deadline.
    options.deadline_ms = 60'000;
    return options;
  }

  static std::unique_ptr<Reward> Make(const RewardOptions& options) {
    absl::StatusOr<std::unique_ptr<Reward>> reward = MakeReward(options);
    CHECK(reward.ok());
    return *std::move(reward);
  }

  // Sample i has the id "i" and the value 10 i.
  static std::vector<RewardResult> Score(Reward& reward, const std::vector<std::string>& completions) {
    std::vector<RewardRequest> requests;
    for (size_t i = 0; i < completions.size(); ++i) {
      requests.push_back(
          {absl::StrCat(i), absl::StrCat("{\"messages\": [], \"value\": ", 10 * i, "}"), completions[i], "stop"});
    }
    return reward.Score(requests);
  }

  // What reached any process: "id todo" lines.
  std::string Log() const { return ReadFile(dir_.File("log")).value_or(""); }

  TempDir dir_;
};

void ExpectGood(const std::vector<RewardResult>& results, size_t i) {
  EXPECT_EQ(results[i].error, "") << i;
  EXPECT_EQ(results[i].reward, 10.0 * static_cast<double>(i)) << i;
}

TEST_F(ProcessRewardTest, RewardsPartsAndErrorsComeBackInOrder) {
  RewardOptions options = Options();
  options.weights = {{"short", 3}};
  const std::unique_ptr<Reward> reward = Make(options);
  const std::vector<RewardResult> results = Score(*reward, {"good", "good", "parts", "error", "nan", "good"});
  ExpectGood(results, 0);
  ExpectGood(results, 1);
  EXPECT_EQ(results[2].reward, 1 + 3 * 0.5);
  EXPECT_THAT(results[2].parts, ElementsAre(Pair("correct", 1), Pair("short", 0.5)));
  EXPECT_EQ(results[3].error, "no judge today");
  EXPECT_THAT(results[4].error, HasSubstr("not a finite number"));
  ExpectGood(results, 5);
  EXPECT_TRUE(reward->Score({}).empty());
  // An error and a number that is not finite are answers: nothing was sent twice.
  EXPECT_EQ(Log(), "0 good\n1 good\n2 parts\n3 error\n4 nan\n5 good\n");
}

TEST_F(ProcessRewardTest, TheProcessSeesTheWholeSample) {
  const std::unique_ptr<Reward> reward = Make(Options());
  const std::vector<RewardRequest> requests = {
      {"12/3", R"({"messages": [{"role": "user", "content": "é\n?"}], "answer": {"deep": [7]}})", "echo", "length"}};
  ASSERT_OK_AND_ASSIGN(const Json seen, ParseJson(reward->Score(requests)[0].error));
  EXPECT_EQ(seen, *ParseJson(R"({"id": "12/3", "messages": [{"role": "user", "content": "é\n?"}], "completion": "echo",
                                 "finish_reason": "length", "answer": {"deep": [7]}})"));
}

// Whatever a process does once, the request is sent again to a fresh one, and the samples beside it are not touched.
class FailsOnce : public ProcessRewardTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(FailsOnce, AndTheRequestIsSentAgain) {
  RewardOptions options = Options();
  if (std::string(GetParam()) == "stall") options.deadline_ms = 3'000;
  const std::unique_ptr<Reward> reward = Make(options);
  const std::vector<RewardResult> results = Score(*reward, {"good", absl::StrCat(GetParam(), " once mark"), "good"});
  for (size_t i = 0; i < 3; ++i) ExpectGood(results, i);
  EXPECT_EQ(Log(), absl::StrCat("0 good\n1 ", GetParam(), "\n1 good\n2 good\n"));
}

INSTANTIATE_TEST_SUITE_P(Ways, FailsOnce,
                         ::testing::Values("die", "kill", "stall", "close", "garbage", "wrong id", "no reward"));

// What always fails makes its sample invalid, with the reason, and nobody else's.
class FailsAlways : public ProcessRewardTest,
                    public ::testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(FailsAlways, AndTheSampleIsInvalid) {
  const auto& [todo, reason] = GetParam();
  RewardOptions options = Options();
  if (std::string(todo) == "stall") options.deadline_ms = 2'000;
  const std::unique_ptr<Reward> reward = Make(options);
  const std::vector<RewardResult> results = Score(*reward, {"good", todo, "good"});
  ExpectGood(results, 0);
  ExpectGood(results, 2);
  EXPECT_THAT(results[1].error, AllOf(HasSubstr("failed 2 of 2 times"), HasSubstr(reason)));
  EXPECT_EQ(results[1].reward, 0);
  EXPECT_EQ(Log(), absl::StrCat("0 good\n1 ", todo, "\n1 ", todo, "\n2 good\n"));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, FailsAlways,
    ::testing::Values(std::pair("die", "it exited with code 3"), std::pair("kill", "it killed by signal 9"),
                      std::pair("stall", "it did not answer within 2000 ms"),
                      std::pair("close", "it closed its output"), std::pair("garbage", "'Traceback: no JSON at all'"),
                      std::pair("wrong id", "not the request's, '1'"), std::pair("no reward", "no \"reward\"")));

TEST_F(ProcessRewardTest, ALateSecondAnswerIsNotTakenForTheNextRequests) {
  const std::unique_ptr<Reward> reward = Make(Options());
  const std::vector<RewardResult> results = Score(*reward, {"two lines", "good", "good"});
  EXPECT_EQ(results[0].reward, 1);
  ExpectGood(results, 1);
  ExpectGood(results, 2);
}

// True once a process has ended (a zombie has).
bool EndsSoon(int pid) {
  for (int i = 0; i < 2'000; ++i) {
    const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
    const size_t state = stat.rfind(')') + 2;
    if (stat.empty() || (state < stat.size() && stat[state] == 'Z')) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

TEST_F(ProcessRewardTest, AProcessThatLeftBetweenRequestsCostsNoAttempt) {
  RewardOptions options = Options();
  options.max_attempts = 1;
  const std::unique_ptr<Reward> reward = Make(options);
  const RewardResult left = Score(*reward, {"leave"})[0];
  ASSERT_EQ(left.error, "");
  ASSERT_TRUE(EndsSoon(static_cast<int>(left.reward)));
  const RewardResult next = Score(*reward, {"pid"})[0];
  EXPECT_EQ(next.error, "");
  EXPECT_NE(next.reward, left.reward);
}

TEST_F(ProcessRewardTest, MaxAttemptsCounts) {
  RewardOptions options = Options();
  options.max_attempts = 3;
  const std::unique_ptr<Reward> reward = Make(options);
  EXPECT_THAT(Score(*reward, {"die"})[0].error, HasSubstr("failed 3 of 3 times"));
  EXPECT_EQ(Log(), "0 die\n0 die\n0 die\n");
}

TEST_F(ProcessRewardTest, SeveralProcessesWorkAtTheSameTime) {
  RewardOptions options = Options();
  options.num_processes = 4;
  const std::unique_ptr<Reward> reward = Make(options);
  std::set<double> pids;
  for (const RewardResult& result : Score(*reward, std::vector<std::string>(4, "meet 4"))) {
    EXPECT_EQ(result.error, "");
    pids.insert(result.reward);
  }
  EXPECT_EQ(pids.size(), 4u);
  const std::vector<RewardResult> many = Score(*reward, std::vector<std::string>(50, "good"));
  for (size_t i = 0; i < many.size(); ++i) ExpectGood(many, i);
}

TEST_F(ProcessRewardTest, ACommandThatCannotStartIsKnownAtOnce) {
  RewardOptions options = Options();
  options.command = {"lockstep-no-such-command"};
  EXPECT_THAT(MakeReward(options), StatusIs(absl::StatusCode::kNotFound, HasSubstr("lockstep-no-such-command")));
}

TEST_F(ProcessRewardTest, ACommandThatEndsAtOnceMakesSamplesInvalid) {
  RewardOptions options = Options();
  options.command = {"sh", "-c", "exit 7"};
  const std::unique_ptr<Reward> reward = Make(options);
  EXPECT_THAT(Score(*reward, {"good"})[0].error, HasSubstr("it exited with code 7"));
}

}  // namespace
}  // namespace lockstep::rollout
