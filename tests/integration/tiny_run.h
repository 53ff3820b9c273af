// Whole runs of the program on a tiny random model with 256 bytes as tokens.
#ifndef LOCKSTEP_TESTS_INTEGRATION_TINY_RUN_H_
#define LOCKSTEP_TESTS_INTEGRATION_TINY_RUN_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "tests/testing/temp_dir.h"

namespace lockstep {

struct Outcome {
  int exit_code = -1;  // 128 + signal if one ended it
  std::string output;  // stdout and stderr
};
Outcome Shell(const std::string& command);

// Model, data (12 sums of two equal digits) and a configuration of 3 steps of 4 prompts x 4 samples.
class TinyRun : public ::testing::Test {
 protected:
  void SetUp() override;

  // Writes the configuration; `extra` is YAML below it. Returns its path.
  std::string Config(const std::string& extra = "");
  // The command line of `lockstep COMMAND` on np ranks, into the run folder `name`.
  std::string CommandLine(const std::string& command, int np, const std::string& name, const std::string& overrides,
                          const std::string& extra = "");
  Outcome Train(int np, const std::string& name, const std::string& overrides, const std::string& extra = "") {
    return Shell(CommandLine("train", np, name, overrides, extra));
  }

  // "weight hash ..." as the run printed it at its end; "" if it did not.
  static std::string HashOf(const Outcome& outcome);
  // Lines of a run's metrics.jsonl.
  std::vector<Json> Metrics(const std::string& name);
  // A run's status.json; null if there is none yet.
  Json RunStatus(const std::string& name);

  testing::TempDir dir_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_INTEGRATION_TINY_RUN_H_
