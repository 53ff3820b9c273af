#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/bounded_queue.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/process/child_process.h"
#include "runtime/process/shim_protocol.h"

namespace lockstep::process {
namespace {

// The shim itself needs milliseconds; a minute is for a machine that swaps.
constexpr std::chrono::seconds kShimDeadline(60);

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Close(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read, write;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "making a pipe");
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

// Where the child's descriptor 0, 1 or 2 comes from; empty: inherited.
absl::StatusOr<Fd> OpenNull(int flags) {
  Fd fd(open("/dev/null", flags | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, "opening /dev/null");
  return fd;
}

// All that lives as long as one posix_spawn.
struct SpawnPlan {
  SpawnPlan() {
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawnattr_init(&attributes) == 0);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  Fd child_stdin, child_stdout, child_stderr, child_status;  // closed here once the child has them
  Fd to_child, from_child, status;
};

absl::Status PlanStdio(const ChildOptions& options, SpawnPlan& plan) {
  if (options.stdin_mode == StdioMode::kPipe) {
    ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
    plan.child_stdin = std::move(pipe.read);
    plan.to_child = std::move(pipe.write);
  } else if (options.stdin_mode == StdioMode::kNull) {
    ASSIGN_OR_RETURN(plan.child_stdin, OpenNull(O_RDONLY));
  }
  if (options.stdout_mode == StdioMode::kPipe) {
    ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
    plan.child_stdout = std::move(pipe.write);
    plan.from_child = std::move(pipe.read);
  } else if (options.stdout_mode == StdioMode::kNull) {
    ASSIGN_OR_RETURN(plan.child_stdout, OpenNull(O_WRONLY));
  }
  if (!options.stderr_file.empty()) {
    plan.child_stderr = Fd(open(options.stderr_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (plan.child_stderr.get() < 0) return ErrnoStatus(errno, absl::StrCat("opening ", options.stderr_file));
  } else if (options.stderr_mode == StdioMode::kNull) {
    ASSIGN_OR_RETURN(plan.child_stderr, OpenNull(O_WRONLY));
  }
  ASSIGN_OR_RETURN(Pipe status, MakePipe());
  plan.status = std::move(status.read);
  plan.child_status = std::move(status.write);
  return absl::OkStatus();
}

// The status pipe moves to a fixed low number. adddup2 clears close-on-exec, and does so too where both numbers are
// equal. It comes last but the sources of 0, 1, 2 may never be 3 or below by accident of the parent's own state, so
// those are moved first and in order.
constexpr int kChildStatusFd = 3;

absl::Status LiftAboveStdio(Fd& fd) {
  if (fd.get() < 0 || fd.get() > kChildStatusFd) return absl::OkStatus();
  const int lifted = fcntl(fd.get(), F_DUPFD_CLOEXEC, kChildStatusFd + 1);
  if (lifted < 0) return ErrnoStatus(errno, "duplicating a descriptor");
  fd = Fd(lifted);
  return absl::OkStatus();
}

absl::Status PlanDescriptors(SpawnPlan& plan) {
  const std::pair<Fd*, int> moves[] = {
      {&plan.child_stdin, 0}, {&plan.child_stdout, 1}, {&plan.child_stderr, 2}, {&plan.child_status, kChildStatusFd}};
  for (const auto& [fd, target] : moves) RETURN_IF_ERROR(LiftAboveStdio(*fd));
  for (const auto& [fd, target] : moves) {
    if (fd->get() >= 0) CHECK(posix_spawn_file_actions_adddup2(&plan.actions, fd->get(), target) == 0);
  }
  return absl::OkStatus();
}

void PlanSignals(SpawnPlan& plan) {
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
    sigaddset(&defaults, signal);
  }
  CHECK(posix_spawnattr_setsigmask(&plan.attributes, &none) == 0);
  CHECK(posix_spawnattr_setsigdefault(&plan.attributes, &defaults) == 0);
  CHECK(posix_spawnattr_setpgroup(&plan.attributes, 0) == 0);
  CHECK(posix_spawnattr_setflags(&plan.attributes,
                                 POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP) == 0);
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Reads the shim's words: kShimStarted, then nothing more (the command runs) or an errno (it could not be executed).
// Returns 0, that errno, or -1 if the shim ended or stalled without a word.
int ReadShimStatus(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kShimDeadline;
  bool started = false;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return -1;
    pollfd entry = {fd, POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(left)) <= 0) continue;
    int word = 0;
    const ssize_t n = read(fd, &word, sizeof word);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) return started ? 0 : -1;
    if (n != sizeof word || word < 0) return -1;
    if (word > 0) return word;
    started = true;  // word == kShimStarted
  }
}

absl::StatusOr<pid_t> Launch(const std::vector<std::string>& shim, const ChildOptions& options, SpawnPlan& plan) {
  std::vector<std::string> argv = shim;
  argv.push_back(absl::StrCat(getpid()));
  argv.push_back(absl::StrCat(kChildStatusFd));
  argv.push_back("--");
  argv.insert(argv.end(), options.argv.begin(), options.argv.end());
  std::vector<std::string> environment = ChildEnvironment(options.environment);
  environment.push_back(absl::StrCat(kShimMark, "=1"));
  const std::vector<char*> argv_pointers = Pointers(argv), environment_pointers = Pointers(environment);
  if (!options.cwd.empty()) {
    CHECK(posix_spawn_file_actions_addchdir_np(&plan.actions, options.cwd.c_str()) == 0);
  }
  pid_t pid = 0;
  const int error_number = posix_spawn(&pid, shim[0].c_str(), &plan.actions, &plan.attributes, argv_pointers.data(),
                                       environment_pointers.data());
  if (error_number != 0) {
    const std::string place = options.cwd.empty() ? "" : absl::StrCat(" in folder ", options.cwd);
    return ErrnoStatus(error_number, absl::StrCat("starting ", options.argv[0], place));
  }
  return pid;
}

void KillAndReap(pid_t pid) {
  kill(-pid, SIGKILL);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

absl::Status ChildOptions::Validate() const {
  if (argv.empty() || argv[0].empty()) return absl::InvalidArgumentError("the command is empty");
  if ((stdin_mode == StdioMode::kPipe) != (stdout_mode == StdioMode::kPipe)) {
    return absl::InvalidArgumentError("stdin_mode and stdout_mode are both kPipe or neither is");
  }
  if (stderr_mode == StdioMode::kPipe) {
    return absl::InvalidArgumentError("stderr_mode is kInherit or kNull; use stderr_file to keep what is said there");
  }
  for (const std::string& entry : environment) {
    if (entry.find('=') == std::string::npos || entry[0] == '=') {
      return absl::InvalidArgumentError(absl::StrCat("environment entry '", entry, "' is not NAME=value"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> SelfShim() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  CHECK(n > 0 && n < static_cast<ssize_t>(sizeof path));
  return {std::string(path, static_cast<size_t>(n)), "child-exec"};
}

struct Spawner::Impl {
  using Task = std::function<void()>;
  std::vector<std::string> shim;
  BoundedQueue<Task> tasks{64};
  std::thread thread;
};

Spawner::Spawner(std::vector<std::string> shim) : impl_(std::make_unique<Impl>()) {
  CHECK(!shim.empty());
  impl_->shim = std::move(shim);
  signal(SIGPIPE, SIG_IGN);
  impl_->thread = std::thread([impl = impl_.get()] {
    for (auto task = impl->tasks.Pop(); task.ok(); task = impl->tasks.Pop()) (*task)();
  });
}

Spawner::~Spawner() {
  impl_->tasks.Close();
  impl_->thread.join();
}

absl::StatusOr<std::unique_ptr<ChildProcess>> Spawner::Spawn(const ChildOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  if (getenv(kShimMark) != nullptr) {
    return absl::FailedPreconditionError(
        "this program was started as child-exec but its main did not hand that to RunShim");
  }
  SpawnPlan plan;
  RETURN_IF_ERROR(PlanStdio(options, plan));
  RETURN_IF_ERROR(PlanDescriptors(plan));
  PlanSignals(plan);

  std::promise<absl::StatusOr<pid_t>> promise;
  RETURN_IF_ERROR(impl_->tasks.Push([&] { promise.set_value(Launch(impl_->shim, options, plan)); }));
  ASSIGN_OR_RETURN(const pid_t pid, promise.get_future().get());
  plan.child_stdin.Close();
  plan.child_stdout.Close();
  plan.child_status.Close();
  if (const int error_number = ReadShimStatus(plan.status.get()); error_number != 0) {
    KillAndReap(pid);
    if (error_number > 0) return ErrnoStatus(error_number, absl::StrCat("starting ", options.argv[0]));
    return absl::InternalError(absl::StrCat("starting ", options.argv[0], ": the shim ", impl_->shim[0], " failed"));
  }
  std::unique_ptr<LineChannel> lines;
  if (options.stdin_mode == StdioMode::kPipe) {
    lines = std::make_unique<LineChannel>(plan.to_child.Release(), plan.from_child.Release());
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, options.argv[0], std::move(lines)));
}

}  // namespace lockstep::process
