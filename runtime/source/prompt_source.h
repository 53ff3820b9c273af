// Prompts from JSON-lines files, as an endless stream with permanent numbers.
//
// A row is an object with "messages" (list of {"role", "content"}) or "prompt" (a text); its other fields go to the
// reward. Every row is checked when the files are opened: errors name file and line.
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
  std::vector<std::string> files;
  bool shuffle = true;
  uint64_t seed = 1;
};

class PromptSource {
 public:
  static absl::StatusOr<PromptSource> Open(const PromptSourceOptions& options);
  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()); }
  Prompt At(int64_t ordinal);

 private:
  struct Row {
    std::string json;
    std::string location;
  };
  PromptSourceOptions options_;
  std::vector<Row> rows_;
  int64_t epoch_ = -1;
  std::vector<int32_t> order_;  // of epoch_
};

}  // namespace lockstep::source

#endif  // LOCKSTEP_RUNTIME_SOURCE_PROMPT_SOURCE_H_
