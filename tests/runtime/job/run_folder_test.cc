#include "runtime/job/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::job {
namespace {

using ::lockstep::testing::StatusIs;
using ::lockstep::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

StepMetrics Metrics(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.Add("reward/mean", 0.25);
  metrics.Add("optimizer/grad_norm", std::nan(""));
  metrics.AddText("weight_hash", "00ff");
  return metrics;
}

TEST(StepMetrics, KeepTheirOrderAndSayNullForWhatIsNotFinite) {
  StepMetrics metrics = Metrics(3);
  metrics.Add("a/first", INFINITY);
  EXPECT_EQ(DumpJson(ToJson(metrics)),
            R"({"step":3,"reward/mean":0.25,"optimizer/grad_norm":null,"a/first":null,"weight_hash":"00ff"})");
}

TEST(StepMetricsDeathTest, ANameIsUsedOnce) {
  StepMetrics metrics = Metrics(3);
  metrics.Add("reward/mean", 1);
  EXPECT_DEATH(ToJson(metrics), "CHECK failed");
  metrics = Metrics(3);
  metrics.Add("step", 1);
  EXPECT_DEATH(ToJson(metrics), "CHECK failed");
}

TEST(RunFolder, HoldsWhatARunLeaves) {
  TempDir dir;
  const std::string run = dir.File("deep/run");
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RunFolder> folder, RunFolder::Create(run, "run: {seed: 7}\n"));
    EXPECT_OK(folder->WriteMetrics(Metrics(1)));
    EXPECT_OK(folder->WriteMetrics(Metrics(2)));
    EXPECT_OK(folder->WriteTrajectories(2, {Json{{"sample", 0}}, Json{{"sample", 1}}}));
    EXPECT_OK(folder->WriteStatus({{"state", "running"}, {"step", 1}}));
    EXPECT_OK(folder->WriteStatus({{"state", "finished"}, {"step", 2}}));
    LogInfo("a line of the log");
    EXPECT_OK(folder->AppendLog("a line of the progress"));
    EXPECT_EQ(folder->ExportDir("final"), run + "/exports/final");
    EXPECT_EQ(folder->dir(), run);
  }
  EXPECT_EQ(*ReadFile(run + "/config.yaml"), "run: {seed: 7}\n");
  EXPECT_EQ(*ReadFile(run + "/metrics.jsonl"),
            absl::StrCat(DumpJson(ToJson(Metrics(1))), "\n", DumpJson(ToJson(Metrics(2))), "\n"));
  EXPECT_EQ(*ReadFile(run + "/trajectories/step_000002.jsonl"), "{\"sample\":0}\n{\"sample\":1}\n");
  EXPECT_EQ(*ReadFile(run + "/status.json"), "{\"state\":\"finished\",\"step\":2}\n");
  EXPECT_TRUE(fs::is_directory(run + "/exports"));
  EXPECT_THAT(*ReadFile(run + "/log.txt"), HasSubstr("a line of the log\nI "));
  EXPECT_THAT(*ReadFile(run + "/log.txt"), HasSubstr("a line of the progress\n"));
  const auto events = fs::directory_iterator(run + "/tensorboard");
  EXPECT_THAT(*ReadFile(events->path().string()), HasSubstr("reward/mean"));
}

TEST(RunFolder, IsForItsOwnerAlone) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RunFolder> folder, RunFolder::Create(dir.File("run"), ""));
  ASSERT_OK(folder->WriteStatus(Json::object()));
  ASSERT_OK(folder->WriteTrajectories(1, {}));
  int files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(dir.File("run"))) {
    struct stat info;
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0077, 0u) << entry.path();
    files += entry.is_regular_file();
  }
  EXPECT_EQ(files, 6);  // config, metrics, events, log, status, trajectories: no temporary file is left
}

TEST(RunFolder, IsNeverOverwrittenUnasked) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<RunFolder> first, RunFolder::Create(dir.path(), "first\n"));
  ASSERT_OK(first->WriteMetrics(Metrics(1)));
  first.reset();
  EXPECT_THAT(RunFolder::Create(dir.path(), "second\n"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(dir.path() + " holds a run already")));
  EXPECT_EQ(*ReadFile(dir.File("config.yaml")), "first\n");
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RunFolder> second,
                       RunFolder::Create(dir.path(), "second\n", IfRunExists::kContinue));
  ASSERT_OK(second->WriteMetrics(Metrics(2)));
  EXPECT_EQ(*ReadFile(dir.File("config.yaml")), "second\n");
  EXPECT_EQ(*ReadFile(dir.File("metrics.jsonl")),
            absl::StrCat(DumpJson(ToJson(Metrics(1))), "\n", DumpJson(ToJson(Metrics(2))), "\n"));
}

TEST(RunFolder, OfRunsThatStartTogetherOneGetsTheFolder) {
  TempDir dir;
  std::atomic<int> got{0}, refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const absl::Status status = RunFolder::Create(dir.File("run"), "").status();
      got += status.ok();
      refused += absl::IsFailedPrecondition(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, 1);
  EXPECT_EQ(refused, 7);
}

TEST(RunFolder, ThatCouldNotBeSetUpIsNotTaken) {
  TempDir dir;
  fs::create_directory(dir.File("run"));
  const std::string in_the_way = dir.Write("run/tensorboard", "a file");
  EXPECT_THAT(RunFolder::Create(dir.File("run"), ""), Not(StatusIs(absl::StatusCode::kOk, "")));
  fs::remove(in_the_way);
  EXPECT_OK(RunFolder::Create(dir.File("run"), ""));
}

TEST(RunFolder, BelowAFileIsAnError) {
  TempDir dir;
  const std::string file = dir.Write("file", "");
  EXPECT_THAT(RunFolder::Create(file + "/run", "").status().ToString(), HasSubstr(file));
}

}  // namespace
}  // namespace lockstep::job
