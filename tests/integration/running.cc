#include "tests/integration/running.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"

namespace lockstep {
namespace {

// The fields of /proc/PID/stat after the command's name: state, parent, ...
std::istringstream StatOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  return std::istringstream(end == std::string::npos ? "" : line.substr(end + 1));
}

bool LookFor(const std::function<bool()>& condition, std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace

Running::Running(const std::string& command, const std::string& output_path) : output_path_(output_path) {
  std::string shell = "/bin/sh", flag = "-c", line = "exec " + command;
  char* const argv[] = {shell.data(), flag.data(), line.data(), nullptr};
  posix_spawn_file_actions_t actions;
  CHECK(posix_spawn_file_actions_init(&actions) == 0);
  CHECK(posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                         0600) == 0);
  CHECK(posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO) == 0);
  CHECK(posix_spawn(&pid_, "/bin/sh", &actions, nullptr, argv, environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
}

Running::~Running() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

Outcome Running::Wait() {
  Outcome outcome;
  int status = 0;
  if (LookFor([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, std::chrono::seconds(120))) {
    pid_ = -1;
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const absl::StatusOr<std::string> output = ReadFile(output_path_);
  if (output.ok()) outcome.output = *output;
  return outcome;
}

bool Eventually(const std::function<bool()>& condition) { return LookFor(condition, std::chrono::seconds(60)); }

bool ProcessExists(pid_t pid) {
  char state = 0;
  return (StatOf(pid) >> state) && state != 'Z';
}

pid_t ParentOf(pid_t pid) {
  char state = 0;
  pid_t parent = -1;
  std::istringstream stat = StatOf(pid);
  return stat >> state >> parent ? parent : -1;
}

}  // namespace lockstep
