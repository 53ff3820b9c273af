// How far a run is, for whoever watches it: step, reward, tokens/s and time left. A terminal sees one line that is
// drawn over; anything else (a pipe, a file, TERM=dumb) sees a plain line a step. Plain lines always go to `log` as
// well.
//
//   Progress progress(options.run.steps, ProgressOutput::Stderr([&](const std::string& line) {...}));
//   progress.Step({.step = 3, ...});
//   progress.Finish();
//
// The drawn line leaves the cursor at its beginning, so a log line that comes between overwrites it.
//
// Thread contract: one thread.
#ifndef LOCKSTEP_RUNTIME_JOB_PROGRESS_H_
#define LOCKSTEP_RUNTIME_JOB_PROGRESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

namespace lockstep::job {

struct StepProgress {
  int64_t step = 0;  // steps that are finished
  double reward = 0;
  double mean_tokens = 0;  // of the completions
  double tokens_per_s = 0;
  double step_seconds = 0;
  std::string detail;  // more, for plain lines only
};

// "0:07", "12:05", "3:02:59"; rounded up, so that a run that is not over does not say 0:00.
std::string DurationText(double seconds);

// "step 3/20  reward 0.512  length 12.3  840 tokens/s  2:05 left"
std::string ProgressText(const StepProgress& progress, int64_t num_steps, double seconds_left);

struct ProgressOutput {
  bool terminal = false;
  // Columns of the terminal at this moment; a line that wraps could not be drawn over.
  std::function<int()> columns;
  std::function<void(const std::string&)> draw;  // bytes to the terminal
  std::function<void(const std::string&)> log;   // a plain line, without its end

  // The terminal that stderr is, if it is one, or that LOCKSTEP_TERMINAL_COLUMNS says is behind it (scripts/launch).
  static ProgressOutput Stderr(std::function<void(const std::string&)> log);
};

class Progress {
 public:
  Progress(int64_t num_steps, ProgressOutput output);
  ~Progress();  // Finish
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Step(const StepProgress& progress);
  // Leaves the last line standing. Later steps begin a new one.
  void Finish();

 private:
  double SecondsLeft(const StepProgress& progress);

  const int64_t num_steps_;
  const ProgressOutput output_;
  std::deque<double> recent_seconds_;  // of the last steps: their length changes as a run goes on
  bool drawn_ = false;
};

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_PROGRESS_H_
