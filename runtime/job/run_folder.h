// What a run leaves on disk. Folders are 0700, files 0600.
//
//   DIR/config.yaml                 effective options
//   DIR/metrics.jsonl               one object a step and evaluation (metrics.h)
//   DIR/tensorboard/                the same scalars as event files
//   DIR/trajectories/step_000001.jsonl   one object a sample (trajectory_log.h); complete or absent
//   DIR/status.json                 where the run stands; replaced whole, so a reader never sees half of one
//   DIR/log.txt                     what was logged
//   DIR/exports/                    models
//
// Thread contract: one thread.
#ifndef LOCKSTEP_RUNTIME_JOB_RUN_FOLDER_H_
#define LOCKSTEP_RUNTIME_JOB_RUN_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/json.h"
#include "runtime/job/metrics.h"

namespace lockstep::job {

// What to do with a folder that holds a run.
enum class IfRunExists : uint8_t {
  kRefuse,
  kContinue,  // metrics and log are appended to, config.yaml and the files of repeated steps are replaced
};

class RunFolder {
 public:
  // Makes DIR and its parents. FailedPrecondition if it holds a run (its metrics.jsonl) and that is refused: of two
  // runs that start at the same time in one folder, one is refused. Also sends this process's log to DIR/log.txt.
  static absl::StatusOr<std::unique_ptr<RunFolder>> Create(const std::string& dir, const std::string& config_yaml,
                                                           IfRunExists if_exists = IfRunExists::kRefuse);
  ~RunFolder();

  absl::Status WriteMetrics(const StepMetrics& metrics);
  absl::Status WriteTrajectories(int64_t step, const std::vector<Json>& samples);
  absl::Status WriteStatus(const Json& status);
  // A line for log.txt alone: what a terminal shows in another form (progress.h).
  absl::Status AppendLog(const std::string& line);
  std::string ExportDir(const std::string& name) const;  // DIR/exports/NAME
  const std::string& dir() const { return dir_; }

 private:
  struct Files;
  explicit RunFolder(std::string dir);
  absl::Status Open(const std::string& config_yaml);

  const std::string dir_;
  std::unique_ptr<Files> files_;
};

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_RUN_FOLDER_H_
