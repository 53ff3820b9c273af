#include "runtime/base/log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::StatusIs;
using testing::TempDir;

// Level, role and files belong to the process: each test leaves level and role as it found them.
class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override {
    SetLogLevel(LogLevel::kInfo);
    SetLogRole("lockstep");
  }

  template <typename Body>
  static std::string Stderr(Body body) {
    ::testing::internal::CaptureStderr();
    body();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, ALineHasLevelTimeRoleAndMessage) {
  SetLogRole("learner 0");
  const std::string time = " [0-9][0-9]:[0-9][0-9]:[0-9][0-9]\\.[0-9][0-9][0-9] ";
  EXPECT_THAT(Stderr([] { LogInfo("hello"); }), MatchesRegex("I" + time + "learner 0  hello\n"));
  EXPECT_THAT(Stderr([] { LogWarning("careful"); }), MatchesRegex("W" + time + "learner 0  careful\n"));
  EXPECT_THAT(Stderr([] { LogError("broken"); }), MatchesRegex("E" + time + "learner 0  broken\n"));
}

TEST_F(LogTest, TheMessageIsNotAFormat) {
  EXPECT_THAT(Stderr([] { LogInfo("{} {0} %s %n {"); }), HasSubstr("{} {0} %s %n {\n"));
}

TEST_F(LogTest, LinesBelowTheLevelAreDropped) {
  EXPECT_EQ(Stderr([] { Log(LogLevel::kDebug, "detail"); }), "");
  SetLogLevel(LogLevel::kDebug);
  EXPECT_THAT(Stderr([] { Log(LogLevel::kDebug, "detail"); }), HasSubstr("detail"));
  SetLogLevel(LogLevel::kError);
  EXPECT_EQ(Stderr([] { LogWarning("careful"); }), "");
}

TEST_F(LogTest, AFileGetsEveryLineToo) {
  const TempDir dir;
  const std::string path = dir.Write("run.log", "before\n");
  ASSERT_OK(SetLogFile(path));
  const std::string on_stderr = Stderr([] {
    LogInfo("one");
    LogInfo("two");
  });
  EXPECT_THAT(on_stderr, MatchesRegex(".* one\n.* two\n"));
  const std::string date = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] ";
  EXPECT_THAT(ReadFile(path).value(), MatchesRegex("before\nI " + date + ".* one\nI " + date + ".* two\n"));
}

TEST_F(LogTest, TheFileIsPrivate) {
  const TempDir dir;
  const std::string path = dir.File("new.log");
  ASSERT_OK(SetLogFile(path));
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAnError) {
  const TempDir dir;
  EXPECT_THAT(SetLogFile(dir.File("none/run.log")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none/run.log")));
}

TEST_F(LogTest, LinesOfManyThreadsStayWhole) {
  constexpr int kThreads = 4, kLines = 200;
  const std::string text = Stderr([] {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([thread] {
        for (int line = 0; line < kLines; ++line) LogInfo(absl::StrCat("thread ", thread, " line ", line, " end"));
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  std::vector<int> next(kThreads, 0);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    int thread = -1, number = -1;
    const size_t at = line.find("thread ");
    ASSERT_NE(at, std::string::npos) << line;
    ASSERT_EQ(std::sscanf(line.c_str() + at, "thread %d line %d end", &thread, &number), 2) << line;
    EXPECT_EQ(number, next.at(thread)++);
  }
  EXPECT_EQ(next, std::vector<int>(kThreads, kLines));
}

}  // namespace
}  // namespace lockstep
