// Processes that the run owns: rollout workers, users' reward commands, environments.
//
//   Spawner spawner(SelfShim());
//   ChildOptions options;
//   options.argv = {"python3", "reward.py"};
//   options.stdin_mode = options.stdout_mode = StdioMode::kPipe;
//   ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> child, spawner.Spawn(options));
//   RETURN_IF_ERROR(child->lines().WriteLine(request, deadline));
//   ASSIGN_OR_RETURN(const std::string answer, child->lines().ReadLine(deadline));
//
// A child dies with its parent, however the parent ends: the kernel sends it SIGKILL (PR_SET_PDEATHSIG). posix_spawn
// cannot arrange that, so a child starts as this program's own `child-exec` command (the *shim*, see RunShim), which
// arranges it, checks that the parent still lives, and executes the wanted command. The signal fires when the *thread*
// that spawned the child ends, so all spawning is done by the Spawner's own thread: let the Spawner live as long as the
// process. Only the child itself is killed that way; processes that it started see their pipes close.
//
// A child gets a process group of its own, so that ending it ends what it started, and nothing else. It inherits no
// file descriptors but 0, 1, 2. Its environment is this process's without the MPI launcher's variables (a child that
// called MPI would otherwise take itself for a rank).
//
// Thread contract: Spawner::Spawn may be called from any thread. One thread at a time uses a ChildProcess.
#ifndef LOCKSTEP_RUNTIME_PROCESS_CHILD_PROCESS_H_
#define LOCKSTEP_RUNTIME_PROCESS_CHILD_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/process/line_channel.h"

namespace lockstep::process {

enum class StdioMode {
  kInherit,
  kNull,  // /dev/null
  kPipe,
};

struct ChildOptions {
  // The command and its arguments. A command without '/' is looked up in PATH.
  std::vector<std::string> argv;
  // "NAME=value" entries added to the environment; they replace inherited ones of the same name.
  std::vector<std::string> environment;
  // Working folder; "" keeps this process's.
  std::string cwd;
  StdioMode stdin_mode = StdioMode::kNull;  // kPipe needs stdout_mode kPipe as well
  StdioMode stdout_mode = StdioMode::kInherit;
  // The child's complaints belong beside ours. A file is opened for appending and wins over the mode.
  StdioMode stderr_mode = StdioMode::kInherit;  // kInherit or kNull
  std::string stderr_file;
  absl::Status Validate() const;
};

// How a child ended.
struct ExitReason {
  int exit_code = -1;  // valid if signal == 0
  int signal = 0;
  bool clean() const { return signal == 0 && exit_code == 0; }
  std::string Text() const;  // "exited with code 3", "killed by signal 9 (Killed)"
};

class ChildProcess {
 public:
  // Kills the group and reaps the child.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& name() const { return name_; }  // the command, for messages

  // Waits until the child has ended. DeadlineExceeded if it still runs. What is left of its group is killed.
  absl::StatusOr<ExitReason> Wait(Deadline deadline);
  bool IsRunning();

  // SIGTERM to the group, `grace` to leave, then SIGKILL. Fine to call when the child has already ended.
  ExitReason Terminate(std::chrono::milliseconds grace);
  // Sends a signal to the child alone (not its group); nothing happens once it has ended.
  void Signal(int signal);

  // The child's stdin and stdout, line by line. CHECKs that stdin_mode and stdout_mode are kPipe.
  LineChannel& lines();
  bool has_lines() const { return lines_ != nullptr; }

 private:
  friend class Spawner;
  ChildProcess(pid_t pid, std::string name, std::unique_ptr<LineChannel> lines);
  bool Poll();  // true once ended; fills reason_

  const pid_t pid_;
  const std::string name_;
  std::unique_ptr<LineChannel> lines_;
  bool ended_ = false;
  ExitReason reason_;
};

class Spawner {
 public:
  // `shim`: the command that ends in RunShim; its arguments are appended. See SelfShim. Ignores SIGPIPE in this
  // process: a write to a dead child is an error code, not a signal.
  explicit Spawner(std::vector<std::string> shim);
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // NotFound, PermissionDenied, ... if the command or its folder cannot be used: known when this returns.
  absl::StatusOr<std::unique_ptr<ChildProcess>> Spawn(const ChildOptions& options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// {this program's own path, "child-exec"}: right for a program whose main hands "child-exec" to RunShim.
std::vector<std::string> SelfShim();

// The child's side. `argv` is what follows "child-exec": parent pid, status descriptor, "--", command ... . Returns
// only on failure (the exit code), after telling the parent.
int RunShim(int argc, char** argv);

// This process's environment without the MPI launcher's variables, `overrides` applied.
std::vector<std::string> ChildEnvironment(const std::vector<std::string>& overrides);

}  // namespace lockstep::process

#endif  // LOCKSTEP_RUNTIME_PROCESS_CHILD_PROCESS_H_
