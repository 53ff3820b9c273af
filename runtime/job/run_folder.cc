#include "runtime/job/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/formats/json_lines.h"
#include "runtime/formats/tensorboard.h"

namespace lockstep::job {
namespace {

double WallTime() { return static_cast<double>(absl::ToUnixMicros(absl::Now())) * 1e-6; }

// Creates the file by which a folder is known to hold a run. False if it was there.
absl::StatusOr<bool> Claim(const std::string& metrics_path) {
  const int file = open(metrics_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    if (errno == EEXIST) return false;
    return ErrnoStatus(errno, "cannot create " + metrics_path);
  }
  close(file);
  return true;
}

}  // namespace

struct RunFolder::Files {
  formats::JsonLinesWriter metrics;
  formats::EventFileWriter events;
  int log = -1;
};

RunFolder::RunFolder(std::string dir) : dir_(std::move(dir)) {}
RunFolder::~RunFolder() {
  if (files_ != nullptr) close(files_->log);
}

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Create(const std::string& dir, const std::string& config_yaml,
                                                             IfRunExists if_exists) {
  RETURN_IF_ERROR(MakeDirs(dir));
  const std::string metrics_path = dir + "/metrics.jsonl";
  ASSIGN_OR_RETURN(const bool claimed, Claim(metrics_path));
  if (!claimed && if_exists == IfRunExists::kRefuse) {
    return absl::FailedPreconditionError(
        absl::StrCat(dir, " holds a run already: choose another run.dir, or remove it"));
  }
  std::unique_ptr<RunFolder> folder(new RunFolder(dir));
  const absl::Status opened = folder->Open(config_yaml);
  if (opened.ok()) return folder;
  if (claimed) unlink(metrics_path.c_str());  // a folder that could not be set up holds no run
  return opened;
}

absl::Status RunFolder::Open(const std::string& config_yaml) {
  const std::string log_path = dir_ + "/log.txt";
  for (const char* part : {"/trajectories", "/tensorboard", "/exports"}) RETURN_IF_ERROR(MakeDirs(dir_ + part));
  RETURN_IF_ERROR(WriteFileDurably(dir_ + "/config.yaml", config_yaml));
  ASSIGN_OR_RETURN(formats::JsonLinesWriter metrics, formats::JsonLinesWriter::Open(dir_ + "/metrics.jsonl"));
  ASSIGN_OR_RETURN(formats::EventFileWriter events,
                   formats::EventFileWriter::Create(dir_ + "/tensorboard", WallTime()));
  RETURN_IF_ERROR(SetLogFile(log_path));
  const int log = open(log_path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (log < 0) return ErrnoStatus(errno, "cannot open " + log_path);
  files_ = std::make_unique<Files>(Files{std::move(metrics), std::move(events), log});
  return absl::OkStatus();
}

absl::Status RunFolder::WriteMetrics(const StepMetrics& metrics) {
  RETURN_IF_ERROR(files_->metrics.Write(ToJson(metrics)));
  return files_->events.WriteScalars(WallTime(), metrics.step, metrics.numbers);
}

absl::Status RunFolder::WriteTrajectories(int64_t step, const std::vector<Json>& samples) {
  std::string lines;
  for (const Json& sample : samples) lines += DumpJson(sample) + "\n";
  return WriteFileDurably(absl::StrFormat("%s/trajectories/step_%06d.jsonl", dir_, step), lines);
}

absl::Status RunFolder::WriteStatus(const Json& status) {
  return WriteFileDurably(dir_ + "/status.json", DumpJson(status) + "\n");
}

absl::Status RunFolder::AppendLog(const std::string& line) {
  const std::string text =
      absl::StrCat("I ", absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::Now(), absl::LocalTimeZone()), " ", line, "\n");
  return AppendRecord(files_->log, text.data(), text.size(), dir_ + "/log.txt");
}

std::string RunFolder::ExportDir(const std::string& name) const { return dir_ + "/exports/" + name; }

}  // namespace lockstep::job
