// What a run leaves on disk.
//
//   DIR/config.yaml                 effective options
//   DIR/metrics.jsonl               one object a step
//   DIR/tensorboard/                the same scalars as event files
//   DIR/trajectories/step_000001.jsonl   one object a sample
//   DIR/status.json                 where the run stands; replaced whole
//   DIR/log.txt                     what was logged
//   DIR/exports/                    models
//
// Thread contract: one thread.
#ifndef LOCKSTEP_RUNTIME_JOB_RUN_FOLDER_H_
#define LOCKSTEP_RUNTIME_JOB_RUN_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/json.h"

namespace lockstep::job {

// Named numbers in the order they are written, and texts (hashes) beside them.
struct StepMetrics {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::pair<std::string, std::string>> texts;
  void Add(const std::string& name, double value) { numbers.emplace_back(name, value); }
};

class RunFolder {
 public:
  // AlreadyExists if the folder holds a run (its metrics.jsonl): runs are never overwritten.
  static absl::StatusOr<std::unique_ptr<RunFolder>> Create(const std::string& dir, const std::string& config_yaml);
  ~RunFolder();

  absl::Status WriteMetrics(const StepMetrics& metrics);
  absl::Status WriteTrajectories(int64_t step, const std::vector<Json>& samples);
  absl::Status WriteStatus(const Json& status);
  std::string ExportDir(const std::string& name) const;  // DIR/exports/NAME
  const std::string& dir() const { return dir_; }

 private:
  struct Files;
  explicit RunFolder(std::string dir);
  const std::string dir_;
  std::unique_ptr<Files> files_;
};

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_RUN_FOLDER_H_
