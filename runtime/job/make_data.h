// Rows for the built-in tasks, to try the program with and to test it.
//
//   arithmetic    {"messages": [{"role": "user", "content": "What is 3 + 4? Reply with the number only."}], "answer":
//   "7"} json_object   {"messages": [...], "required_keys": ["name", "size"]}
//
// Row i is a pure function of (task, options, seed, i): more rows continue fewer. The splits never share a question:
// about one pair of operands in five is for testing, which ones a fixed hash decides; of the things to describe, every
// other one.
#ifndef LOCKSTEP_RUNTIME_JOB_MAKE_DATA_H_
#define LOCKSTEP_RUNTIME_JOB_MAKE_DATA_H_

#include <cstdint>
#include <iosfwd>
#include <string>

#include "absl/status/status.h"

namespace lockstep::job {

struct MakeDataOptions {
  std::string task;  // "arithmetic" or "json_object"
  int64_t rows = 100;
  uint64_t seed = 1;
  std::string split = "train";  // "train" or "test"
  // arithmetic: operands are 1 to this. At least 9, so that both splits have questions.
  int64_t max_operand = 9;
  absl::Status Validate() const;
};

// Writes JSON lines. InvalidArgument for bad options; Unavailable if the output does not take them.
absl::Status MakeData(const MakeDataOptions& options, std::ostream& out);

// Whether a sum is kept for testing.
bool IsTestPair(int a, int b);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_MAKE_DATA_H_
