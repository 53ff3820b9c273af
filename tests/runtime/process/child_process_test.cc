#include "runtime/process/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "runtime/base/file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace lockstep::process {
namespace {

using ::lockstep::testing::StatusIs;
using ::lockstep::testing::TempDir;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Deadline In(milliseconds duration) { return std::chrono::steady_clock::now() + duration; }

std::vector<std::string> Shim() { return {LOCKSTEP_CHILD_EXEC_PATH, "child-exec"}; }

ChildOptions Shell(const std::string& script, bool lines = true) {
  ChildOptions options;
  options.argv = {"sh", "-c", script};
  if (lines) options.stdin_mode = options.stdout_mode = StdioMode::kPipe;
  return options;
}

// Whether a process exists that has not ended (zombies have).
bool Lives(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return false;
  const size_t state = text.rfind(')') + 2;
  return text[state] != 'Z' && text[state] != 'X';
}

bool EndsWithin(pid_t pid, milliseconds duration) {
  for (const Deadline deadline = In(duration); std::chrono::steady_clock::now() < deadline;) {
    if (!Lives(pid)) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return !Lives(pid);
}

pid_t ToPid(const std::string& text) {
  int pid = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text, &pid)) << text;
  return pid;
}

class ChildProcessTest : public ::testing::Test {
 protected:
  Spawner spawner_{Shim()};
};

TEST_F(ChildProcessTest, AnswersLinesAndEndsWhenItsInputEnds) {
  ASSERT_OK_AND_ASSIGN(auto child, spawner_.Spawn(Shell("while read x; do echo \"got $x\"; done; exit 3")));
  for (const std::string word : {"one", "two"}) {
    EXPECT_OK(child->lines().WriteLine(word, In(seconds(10))));
    ASSERT_OK_AND_ASSIGN(const std::string answer, child->lines().ReadLine(In(seconds(10))));
    EXPECT_EQ(answer, "got " + word);
  }
  EXPECT_TRUE(child->IsRunning());
  child->lines().CloseWrite();
  EXPECT_THAT(child->lines().ReadLine(In(seconds(10))), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed")));
  ASSERT_OK_AND_ASSIGN(const ExitReason reason, child->Wait(In(seconds(10))));
  EXPECT_EQ(reason.exit_code, 3);
  EXPECT_EQ(reason.Text(), "exited with code 3");
  EXPECT_FALSE(child->IsRunning());
}

TEST_F(ChildProcessTest, LargeLinesBothWaysDoNotDeadlock) {
  // cat answers before it has read everything: 4 MB is far more than both pipes hold.
  ChildOptions options;
  options.argv = {"cat"};
  options.stdin_mode = options.stdout_mode = StdioMode::kPipe;
  ASSERT_OK_AND_ASSIGN(auto child, spawner_.Spawn(options));
  const std::string line(4 << 20, 'x');
  EXPECT_OK(child->lines().WriteLine(line, In(seconds(30))));
  ASSERT_OK_AND_ASSIGN(const std::string answer, child->lines().ReadLine(In(seconds(30))));
  EXPECT_TRUE(answer == line);
}

TEST_F(ChildProcessTest, LastLineWithoutNewlineAndCarriageReturns) {
  ASSERT_OK_AND_ASSIGN(auto child, spawner_.Spawn(Shell("printf 'a\\r\\n\\nlast'")));
  EXPECT_EQ(*child->lines().ReadLine(In(seconds(10))), "a");
  EXPECT_EQ(*child->lines().ReadLine(In(seconds(10))), "");
  EXPECT_EQ(*child->lines().ReadLine(In(seconds(10))), "last");
  EXPECT_THAT(child->lines().ReadLine(In(seconds(10))), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed")));
}

TEST_F(ChildProcessTest, SilenceIsADeadlineAndTheChannelStaysUsable) {
  ASSERT_OK_AND_ASSIGN(auto child, spawner_.Spawn(Shell("read x; echo late $x; read y")));
  EXPECT_THAT(child->lines().ReadLine(In(milliseconds(30))),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("did not answer")));
  EXPECT_OK(child->lines().WriteLine("now", In(seconds(10))));
  EXPECT_EQ(*child->lines().ReadLine(In(seconds(10))), "late now");
}

TEST_F(ChildProcessTest, AChildThatNeverReadsCostsOnlyTheDeadline) {
  ASSERT_OK_AND_ASSIGN(auto child, spawner_.Spawn(Shell("sleep 600")));
  const std::string line(1 << 20, 'x');
  EXPECT_THAT(child->lines().WriteLine(line, In(milliseconds(50))),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("of 1048577 bytes")));
  // Half a line is in the pipe: another one behind it would be garbage.
  EXPECT_THAT(child->lines().WriteLine("x", In(seconds(10))),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("1048577")));
}

TEST_F(ChildProcessTest, WritingToADeadChildIsAnError) {
  ASSERT_OK_AND_ASSIGN(auto child, spawner_.Spawn(Shell("exit 0")));
  ASSERT_OK(child->Wait(In(seconds(10))));
  EXPECT_THAT(child->lines().WriteLine("x", In(seconds(10))), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("")));
}

TEST_F(ChildProcessTest, ALineWithoutEndIsCutOff) {
  int to_child[2], from_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(from_child), 0);
  LineChannel channel(to_child[1], from_child[0], /*max_line_bytes=*/100);
  const std::string text(101, 'x');
  ASSERT_EQ(write(from_child[1], "short\n", 6), 6);
  ASSERT_EQ(write(from_child[1], text.data(), text.size()), 101);
  EXPECT_EQ(*channel.ReadLine(In(seconds(1))), "short");
  EXPECT_THAT(channel.ReadLine(In(seconds(1))),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("longer than 100 bytes")));
  close(to_child[0]);
  close(from_child[1]);
}

TEST_F(ChildProcessTest, UnknownCommandsAndFoldersAreErrorsOfSpawn) {
  ChildOptions options;
  options.argv = {"no-such-command-here"};
  EXPECT_THAT(spawner_.Spawn(options), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no-such-command-here")));
  options.argv = {"/"};
  EXPECT_THAT(spawner_.Spawn(options), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("starting /")));
  options = Shell("true");
  options.cwd = "/no/such/folder";
  EXPECT_THAT(spawner_.Spawn(options), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such/folder")));
  options = Shell("true");
  options.environment = {"NOVALUE"};
  EXPECT_THAT(spawner_.Spawn(options), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("NOVALUE")));
}

TEST_F(ChildProcessTest, FolderEnvironmentAndStderrFile) {
  const TempDir dir;
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  setenv("PMIX_RANK", "1", 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  ChildOptions options =
      Shell("pwd; echo \"[$OMPI_COMM_WORLD_RANK$PMIX_RANK][$OMP_NUM_THREADS][$EXTRA]\"; echo no >&2");
  options.cwd = dir.path();
  options.environment = {"EXTRA=a=b"};
  options.stderr_file = dir.File("stderr.log");
  ASSERT_OK_AND_ASSIGN(auto child, spawner_.Spawn(options));
  EXPECT_EQ(*child->lines().ReadLine(In(seconds(10))), dir.path());
  EXPECT_EQ(*child->lines().ReadLine(In(seconds(10))), "[][1][a=b]");
  ASSERT_OK(child->Wait(In(seconds(10))));
  EXPECT_EQ(*ReadFile(options.stderr_file), "no\n");
  struct stat info;
  ASSERT_EQ(stat(options.stderr_file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  unsetenv("OMPI_COMM_WORLD_RANK");
  unsetenv("PMIX_RANK");
}

TEST_F(ChildProcessTest, EnvironmentOverridesReplace) {
  setenv("LOCKSTEP_TEST_VALUE", "old", 1);
  EXPECT_THAT(ChildEnvironment({"LOCKSTEP_TEST_VALUE=new"}),
              AllOf(Contains("LOCKSTEP_TEST_VALUE=new"), Not(Contains("LOCKSTEP_TEST_VALUE=old"))));
}

TEST_F(ChildProcessTest, InheritsNoDescriptors) {
  const int leaked = fcntl(0, F_DUPFD, 50);  // no close-on-exec
  ASSERT_GE(leaked, 50);
  // 3 was the shim's status pipe. The tests are the shell's own: nothing is opened to look.
  const std::string script =
      "for fd in 2 3 4 5 6 7 8 9 " + std::to_string(leaked) + "; do [ -e /proc/$$/fd/$fd ] && echo $fd; done; echo end";
  ASSERT_OK_AND_ASSIGN(auto child, spawner_.Spawn(Shell(script)));
  EXPECT_EQ(*child->lines().ReadLine(In(seconds(10))), "2");
  EXPECT_EQ(*child->lines().ReadLine(In(seconds(10))), "end");
  close(leaked);
}

TEST_F(ChildProcessTest, TerminateAsksFirst) {
  ASSERT_OK_AND_ASSIGN(auto child,
                       spawner_.Spawn(Shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done")));
  ASSERT_OK(child->lines().ReadLine(In(seconds(10))));
  EXPECT_THAT(child->Wait(In(milliseconds(20))),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("still runs")));
  EXPECT_EQ(child->Terminate(seconds(10)).exit_code, 7);
}

TEST_F(ChildProcessTest, TerminateKillsWhatDoesNotListenWithAllItStarted) {
  ASSERT_OK_AND_ASSIGN(auto child,
                       spawner_.Spawn(Shell("trap '' TERM; sleep 600 & echo $!; while :; do sleep 0.01; done")));
  ASSERT_OK_AND_ASSIGN(const std::string grandchild, child->lines().ReadLine(In(seconds(10))));
  const ExitReason reason = child->Terminate(milliseconds(50));
  EXPECT_EQ(reason.signal, SIGKILL);
  EXPECT_THAT(reason.Text(), HasSubstr("killed by signal 9"));
  EXPECT_TRUE(EndsWithin(ToPid(grandchild), seconds(10)));
}

TEST_F(ChildProcessTest, DestructionEndsTheGroup) {
  ASSERT_OK_AND_ASSIGN(auto child, spawner_.Spawn(Shell("sleep 600 & echo $!; wait")));
  ASSERT_OK_AND_ASSIGN(const std::string grandchild, child->lines().ReadLine(In(seconds(10))));
  const pid_t pid = child->pid();
  child.reset();
  EXPECT_FALSE(Lives(pid));
  EXPECT_TRUE(EndsWithin(ToPid(grandchild), seconds(10)));
}

TEST_F(ChildProcessTest, SurvivesTheEndOfTheThreadThatAskedForIt) {
  std::unique_ptr<ChildProcess> child;
  std::thread([&] { child = *spawner_.Spawn(Shell("while read x; do echo $x; done")); }).join();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(child->IsRunning());
  EXPECT_OK(child->lines().WriteLine("still here", In(seconds(10))));
  EXPECT_EQ(*child->lines().ReadLine(In(seconds(10))), "still here");
}

TEST_F(ChildProcessTest, ChildDiesWithItsParent) {
  // A parent that spawns a child of its own, says its pid and is killed without a chance to clean up.
  ChildOptions options;
  options.argv = {LOCKSTEP_CHILD_EXEC_PATH, "spawn-sleep"};
  options.stdin_mode = options.stdout_mode = StdioMode::kPipe;
  ASSERT_OK_AND_ASSIGN(auto parent, spawner_.Spawn(options));
  ASSERT_OK_AND_ASSIGN(const std::string line, parent->lines().ReadLine(In(seconds(30))));
  const pid_t child = ToPid(line);
  ASSERT_GT(child, 0);
  EXPECT_TRUE(Lives(child));
  EXPECT_NE(getpgid(child), getpgid(parent->pid()));  // what ends it is not the end of the parent's group
  parent->Signal(SIGKILL);
  EXPECT_TRUE(EndsWithin(child, seconds(10)));
}

TEST_F(ChildProcessTest, ManySpawnsFromManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 5; ++i) {
        auto child = spawner_.Spawn(Shell("echo " + std::to_string(t * 10 + i)));
        ASSERT_OK(child);
        auto line = (*child)->lines().ReadLine(In(seconds(30)));
        ASSERT_OK(line);
        EXPECT_EQ(*line, std::to_string(t * 10 + i));
        auto reason = (*child)->Wait(In(seconds(30)));
        ASSERT_OK(reason);
        EXPECT_TRUE(reason->clean());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Spawner, RefusesToSpawnItselfForEver) {
  // The mark of a shim that went on to do something else.
  setenv("LOCKSTEP_CHILD_EXEC", "1", 1);
  Spawner spawner(Shim());
  EXPECT_THAT(spawner.Spawn(Shell("true")), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("RunShim")));
  unsetenv("LOCKSTEP_CHILD_EXEC");
}

TEST(Spawner, NoticesAProgramThatIsNoShim) {
  Spawner spawner({"/bin/true"});
  EXPECT_THAT(spawner.Spawn(Shell("true")),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("the shim /bin/true failed")));
}

TEST(SelfShim, NamesThisProgram) {
  const std::vector<std::string> shim = SelfShim();
  ASSERT_EQ(shim.size(), 2u);
  EXPECT_THAT(shim[0], HasSubstr("runtime_process_test"));
  EXPECT_EQ(shim[1], "child-exec");
}

}  // namespace
}  // namespace lockstep::process
