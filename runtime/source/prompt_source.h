// Prompts from JSON-lines files, as an endless stream with permanent numbers.
//
// A row is an object with "messages" (list of {"role", "content"}; the content is a text, a list of parts, or null
// beside "tool_calls") or "prompt" (a text); its other fields go to the reward. Every row is checked when the files are
// opened.
//
// The stream: epoch e holds every row once, in an order that (seed, e) decides; ordinal = e * num_rows + place. An
// ordinal's prompt is a pure function of (files, seed, ordinal), so going on from any ordinal is exact.
//
// Thread contract: At may be called by one thread at a time (it caches an epoch's order).
#ifndef LOCKSTEP_RUNTIME_SOURCE_PROMPT_SOURCE_H_
#define LOCKSTEP_RUNTIME_SOURCE_PROMPT_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/prompt.h"

namespace lockstep::source {

struct PromptSourceOptions {
  // Read in this order; places without shuffling follow it.
  std::vector<std::string> files;
  // A new order each epoch. Off: the order of the files, each epoch the same.
  bool shuffle = true;
  uint64_t seed = 1;
};

class PromptSource {
 public:
  // InvalidArgument "file:line: what" for the first line that is no row, and for a file without rows; NotFound and the
  // like for a file that cannot be read. Holds all rows in memory.
  static absl::StatusOr<PromptSource> Open(const PromptSourceOptions& options);

  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }  // of one epoch, at least 1

  // ordinal >= 0 (CHECKed). The first ordinal of another epoch costs O(num_rows), the others O(1).
  Prompt At(int64_t ordinal);

 private:
  struct Row {
    std::string json;
    std::string location;
  };
  absl::Status Append(const std::string& path);
  void Arrange(int64_t epoch);

  PromptSourceOptions options_;
  std::vector<Row> rows_;
  int64_t epoch_ = -1;
  std::vector<int32_t> order_;  // of epoch_
};

}  // namespace lockstep::source

#endif  // LOCKSTEP_RUNTIME_SOURCE_PROMPT_SOURCE_H_
