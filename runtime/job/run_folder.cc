#include "runtime/job/run_folder.h"

#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/formats/json_lines.h"
#include "runtime/formats/tensorboard.h"

namespace lockstep::job {
namespace {

double WallTime() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

struct RunFolder::Files {
  formats::JsonLinesWriter metrics;
  formats::EventFileWriter events;
};

RunFolder::RunFolder(std::string dir) : dir_(std::move(dir)) {}
RunFolder::~RunFolder() = default;

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Create(const std::string& dir, const std::string& config_yaml) {
  if (std::filesystem::exists(dir + "/metrics.jsonl")) {
    return absl::InvalidArgumentError(absl::StrCat(dir, " holds a run already: choose another run.dir, or remove it"));
  }
  for (const char* part : {"", "/trajectories", "/tensorboard", "/exports"}) RETURN_IF_ERROR(MakeDirs(dir + part));
  RETURN_IF_ERROR(WriteFileDurably(dir + "/config.yaml", config_yaml));
  RETURN_IF_ERROR(SetLogFile(dir + "/log.txt"));
  ASSIGN_OR_RETURN(formats::JsonLinesWriter metrics, formats::JsonLinesWriter::Open(dir + "/metrics.jsonl"));
  ASSIGN_OR_RETURN(formats::EventFileWriter events, formats::EventFileWriter::Create(dir + "/tensorboard", WallTime()));
  std::unique_ptr<RunFolder> folder(new RunFolder(dir));
  folder->files_ = std::make_unique<Files>(Files{std::move(metrics), std::move(events)});
  return folder;
}

absl::Status RunFolder::WriteMetrics(const StepMetrics& metrics) {
  Json line = {{"step", metrics.step}};
  for (const auto& [name, value] : metrics.numbers) {
    line[name] = std::isfinite(value) ? Json(value) : Json();
  }
  for (const auto& [name, text] : metrics.texts) line[name] = text;
  RETURN_IF_ERROR(files_->metrics.Write(line));
  return files_->events.WriteScalars(WallTime(), metrics.step, metrics.numbers);
}

absl::Status RunFolder::WriteTrajectories(int64_t step, const std::vector<Json>& samples) {
  ASSIGN_OR_RETURN(formats::JsonLinesWriter writer,
                   formats::JsonLinesWriter::Open(absl::StrFormat("%s/trajectories/step_%06d.jsonl", dir_, step)));
  for (const Json& sample : samples) RETURN_IF_ERROR(writer.Write(sample));
  return absl::OkStatus();
}

absl::Status RunFolder::WriteStatus(const Json& status) {
  return WriteFileDurably(dir_ + "/status.json", DumpJson(status) + "\n");
}

std::string RunFolder::ExportDir(const std::string& name) const { return dir_ + "/exports/" + name; }

}  // namespace lockstep::job
