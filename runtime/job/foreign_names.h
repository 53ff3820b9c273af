// Option names of verl, TRL and OpenRLHF that people type out of habit, and ours. docs/coming-from.md has the whole
// map.
#ifndef LOCKSTEP_RUNTIME_JOB_FOREIGN_NAMES_H_
#define LOCKSTEP_RUNTIME_JOB_FOREIGN_NAMES_H_

#include <string_view>

#include "absl/types/span.h"

namespace lockstep::job {

struct ForeignName {
  const char* key;   // last part of the name there
  const char* path;  // ours
};

absl::Span<const ForeignName> ForeignNames();

// Our path for a foreign key, or nullptr.
const char* FindForeignName(std::string_view key);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_FOREIGN_NAMES_H_
