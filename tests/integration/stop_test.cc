// What ends a run early, and what it leaves behind: signals at any rank, processes that are killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/integration/running.h"
#include "tests/integration/tiny_run.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class StopTest : public TinyRun {
 protected:
  // A run that goes on until it is stopped.
  std::string Endless(int np, const std::string& name) { return CommandLine("train", np, name, "run.steps=1000000"); }
  bool ReachesStep(const std::string& name, int64_t step) {
    return Eventually([&] {
      const Json status = RunStatus(name);
      return !status.is_null() && status["step"] >= step;
    });
  }
  // The run ended well, after a whole step.
  void ExpectStopped(const std::string& name, const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    const Json status = RunStatus(name);
    EXPECT_EQ(status["state"], "stopped") << status;
    EXPECT_EQ(status["step"], Metrics(name).size());
    EXPECT_TRUE(std::filesystem::exists(dir_.File(name + "/exports/final/model.safetensors")));
    EXPECT_EQ(HashOf(outcome), status["weight_hash"]);
  }
  pid_t Pid(const std::string& name) { return RunStatus(name)["pid"].get<pid_t>(); }
  pid_t WorkerPid(const std::string& name, const char* id) { return RunStatus(name)["worker_pids"][id].get<pid_t>(); }
};

TEST_F(StopTest, EverySignalEndsARunAfterTheStepAtHand) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    const std::string name = absl::StrCat("run", signal);
    Running run(Endless(1, name), dir_.File("output.txt"));
    ASSERT_TRUE(ReachesStep(name, 2)) << run.Wait().output;
    kill(run.pid(), signal);
    ExpectStopped(name, run.Wait());
  }
}

TEST_F(StopTest, ASignalAtAnyRankEndsAllOfThem) {
  for (const bool at_learner : {true, false}) {
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
      const std::string name = absl::StrCat(at_learner ? "learner" : "rollout", signal);
      Running run(Endless(3, name), dir_.File("output.txt"));
      ASSERT_TRUE(ReachesStep(name, 2)) << run.Wait().output;
      const pid_t worker = WorkerPid(name, "2");
      kill(at_learner ? Pid(name) : ParentOf(worker), signal);
      ExpectStopped(name, run.Wait());
      EXPECT_FALSE(ProcessExists(worker));
    }
  }
}

TEST_F(StopTest, ASignalAtTheLauncherEndsTheRun) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    const std::string name = absl::StrCat("run", signal);
    const std::string program_and_arguments = CommandLine("train", 1, name, "run.steps=1000000");
    const std::string arguments = program_and_arguments.substr(program_and_arguments.find(" train "));
    Running run(absl::StrCat("env ASAN_OPTIONS=detect_leaks=0 LOCKSTEP_PROGRAM=", LOCKSTEP_PROGRAM_PATH, " ",
                             LOCKSTEP_SOURCE_DIR, "/scripts/launch -np 2", arguments),
                dir_.File("output.txt"));
    ASSERT_TRUE(ReachesStep(name, 2)) << run.Wait().output;
    kill(run.pid(), signal);
    ExpectStopped(name, run.Wait());
  }
}

TEST_F(StopTest, AStopWhileEvaluatingEndsTheRunToo) {
  dir_.Write("many.jsonl", [] {
    std::string rows;
    for (int i = 0; i < 20000; ++i) rows += absl::StrCat("{\"prompt\":\"", i, "\",\"answer\":\"1\"}\n");
    return rows;
  }());
  Running run(CommandLine("train", 1, "run", absl::StrCat("data.eval=[", dir_.File("many.jsonl"), "]")),
              dir_.File("output.txt"));
  ASSERT_TRUE(Eventually([&] { return !RunStatus("run").is_null(); }));
  kill(run.pid(), SIGTERM);
  ExpectStopped("run", run.Wait());
}

TEST_F(StopTest, AKilledWorkerIsReplacedAndTheWeightsAreTheSame) {
  const std::string overrides = "run.steps=40 rollout.prompts_per_step=8";
  const Outcome undisturbed = Train(1, "undisturbed", overrides);
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.output;
  Running run(CommandLine("train", 2, "disturbed", overrides), dir_.File("output.txt"));
  pid_t last = 0;
  for (const int64_t step : {1, 12}) {
    ASSERT_TRUE(ReachesStep("disturbed", step)) << run.Wait().output;
    const pid_t worker = WorkerPid("disturbed", "1");
    EXPECT_NE(worker, last);
    kill(worker, SIGKILL);
    last = worker;
  }
  const Outcome disturbed = run.Wait();
  EXPECT_EQ(disturbed.exit_code, 0) << disturbed.output;
  EXPECT_THAT(disturbed.output, HasSubstr("killed by signal 9 (Killed): starting it again"));
  EXPECT_EQ(HashOf(disturbed), HashOf(undisturbed)) << disturbed.output;
}

TEST_F(StopTest, AKilledLearnerLeavesNothingBehind) {
  std::filesystem::create_directory(dir_.File("tmp"));
  const std::string place = absl::StrCat("env -u XDG_RUNTIME_DIR TMPDIR=", dir_.File("tmp"), " ");
  Running run(place + Endless(2, "run"), dir_.File("output.txt"));
  ASSERT_TRUE(ReachesStep("run", 1)) << run.Wait().output;
  const auto sockets = [&] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.File("tmp"))) {
      count += entry.path().filename().string().starts_with("lockstep-");
    }
    return count;
  };
  EXPECT_EQ(sockets(), 1);
  const pid_t worker = WorkerPid("run", "1"), supervisor = ParentOf(worker);
  kill(Pid("run"), SIGKILL);
  EXPECT_NE(run.Wait().exit_code, 0);
  EXPECT_TRUE(Eventually([&] { return !ProcessExists(worker) && !ProcessExists(supervisor); }));
  EXPECT_TRUE(Eventually([&] { return sockets() == 0; }));
}

}  // namespace
}  // namespace lockstep
