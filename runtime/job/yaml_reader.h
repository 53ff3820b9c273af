// Strict reading of a run's options: one YAML file, then `section.key=value` overrides from the command line.
//
// Everything doubtful is an InvalidArgument error of one line that names file, line and option: an unknown or duplicate
// key (with the nearest known one), a wrong type, a number in quotes, yes/on for a boolean, a leading zero, an empty
// value, several documents, a value out of its bounds, and two options that contradict each other. Nothing is read as
// something that it does not say.
//
//   ASSIGN_OR_RETURN(Config config, ReadConfig("configs/arithmetic.yaml", {"run.seed=7", "rollout.stop=[\"\\n\"]"}));
//
// An override is checked like a line of the file and wins over it. Its value is YAML, except that a text option takes
// the characters as they are (so a regular expression needs no second quoting).
#ifndef LOCKSTEP_RUNTIME_JOB_YAML_READER_H_
#define LOCKSTEP_RUNTIME_JOB_YAML_READER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/job/options.h"

namespace lockstep::job {

struct Config {
  RunOptions options;
  // Where each option that somebody wrote stands: "x.yaml:12" or "command line". What is not here is a default.
  std::map<std::string, std::string> written_at;
};

absl::StatusOr<Config> ReadConfig(const std::string& path, const std::vector<std::string>& overrides);

// The same from memory; `name` stands for the path in messages.
absl::StatusOr<Config> ParseConfig(const std::string& yaml, const std::string& name,
                                   const std::vector<std::string>& overrides);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_YAML_READER_H_
