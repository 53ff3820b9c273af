// What rewards read out of rows and completions.
#ifndef LOCKSTEP_ROLLOUT_REWARDS_TEXT_FIELDS_H_
#define LOCKSTEP_ROLLOUT_REWARDS_TEXT_FIELDS_H_

#include <string>

#include "absl/status/statusor.h"

namespace lockstep::rollout {

// Without ASCII white space at both ends.
std::string Trim(const std::string& text);

// A text or number field of a data row, as trimmed text (a number as JSON writes it). InvalidArgument if there is no
// such field or it is neither, or if nothing is left of it.
absl::StatusOr<std::string> AnswerOf(const std::string& row_json, const std::string& field);

// A number as people and models write it, in canonical form: "-3,450.50" is "-3450.5", "07" is "7", "-0.0" is "0".
//
//   number = [ "-" | U+2212 ] digits [ "." digits ]      digits may be grouped by commas in threes
//
// A minus belongs to the number unless an operand stands directly before it ("3-4" ends in 4, "= -4" in -4). A dot or
// comma that no digit follows ends a sentence and not a number.
struct Number {
  std::string canonical;  // empty: there is none
  bool whole = false;     // the text is this number and nothing else
};
Number LastNumber(const std::string& text);

}  // namespace lockstep::rollout

#endif  // LOCKSTEP_ROLLOUT_REWARDS_TEXT_FIELDS_H_
