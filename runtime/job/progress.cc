#include "runtime/job/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep::job {
namespace {

constexpr size_t kRecentSteps = 16;
constexpr int kUsualColumns = 80;

// Under mpirun stderr is a pipe, also where its other end is a terminal: whoever started mpirun then says how wide it
// is. 0: nobody said.
int ForwardedColumns() {
  const char* columns = std::getenv("LOCKSTEP_TERMINAL_COLUMNS");
  return columns == nullptr ? 0 : std::max(0, std::atoi(columns));
}

bool StderrIsTerminal() {
  const char* term = std::getenv("TERM");
  if (term != nullptr && std::string_view(term) == "dumb") return false;
  return isatty(STDERR_FILENO) == 1 || ForwardedColumns() > 0;
}

int StderrColumns() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return ForwardedColumns() > 0 ? ForwardedColumns() : kUsualColumns;
}

}  // namespace

std::string DurationText(double seconds) {
  constexpr double kMost = 1e9;  // decades: nobody waits for more, and it fits into an integer
  const auto whole = static_cast<int64_t>(std::ceil(std::isfinite(seconds) ? std::clamp(seconds, 0.0, kMost) : kMost));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours > 0) return absl::StrFormat("%d:%02d:%02d", hours, minutes, rest);
  return absl::StrFormat("%d:%02d", minutes, rest);
}

std::string ProgressText(const StepProgress& progress, int64_t num_steps, double seconds_left) {
  return absl::StrFormat("step %d/%d  reward %.3f  length %.1f  %.0f tokens/s  %s left", progress.step, num_steps,
                         progress.reward, progress.mean_tokens, progress.tokens_per_s, DurationText(seconds_left));
}

ProgressOutput ProgressOutput::Stderr(std::function<void(const std::string&)> log) {
  ProgressOutput output;
  output.terminal = StderrIsTerminal();
  output.columns = StderrColumns;
  output.draw = [](const std::string& bytes) {
    std::fwrite(bytes.data(), 1, bytes.size(), stderr);
    std::fflush(stderr);
  };
  output.log = std::move(log);
  return output;
}

Progress::Progress(int64_t num_steps, ProgressOutput output) : num_steps_(num_steps), output_(std::move(output)) {}
Progress::~Progress() { Finish(); }

double Progress::SecondsLeft(const StepProgress& progress) {
  recent_seconds_.push_back(progress.step_seconds);
  if (recent_seconds_.size() > kRecentSteps) recent_seconds_.pop_front();
  const double sum = std::accumulate(recent_seconds_.begin(), recent_seconds_.end(), 0.0);
  const int64_t steps_left = std::max<int64_t>(0, num_steps_ - progress.step);
  return sum / static_cast<double>(recent_seconds_.size()) * static_cast<double>(steps_left);
}

void Progress::Step(const StepProgress& progress) {
  const std::string text = ProgressText(progress, num_steps_, SecondsLeft(progress));
  output_.log(progress.detail.empty() ? text : absl::StrCat(text, "  ", progress.detail));
  if (!output_.terminal) return;
  // The last column stays free: some terminals wrap as soon as it is written.
  const int room = std::max(0, output_.columns() - 1);
  output_.draw(absl::StrCat("\r", text.substr(0, static_cast<size_t>(room)), "\x1b[K\r"));
  drawn_ = true;
}

void Progress::Finish() {
  if (drawn_) output_.draw("\n");
  drawn_ = false;
}

}  // namespace lockstep::job
