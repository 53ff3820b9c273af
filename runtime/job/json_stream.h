// The commands that speak JSON lines: a request on each line of the input, its answer on the same line of the output.
//
// A line that cannot be answered gets {"error": "..."} and the stream goes on. Answers are flushed one by one, so a
// pipe may ask one question at a time.
#ifndef LOCKSTEP_RUNTIME_JOB_JSON_STREAM_H_
#define LOCKSTEP_RUNTIME_JOB_JSON_STREAM_H_

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/json.h"

namespace lockstep::job {

// Answers every line up to the end of `in`. Aborted at the end, with the count, if some were answered by an error (exit
// code 1); Unavailable if `out` is gone.
absl::Status ServeJsonLines(std::istream& in, std::ostream& out,
                            absl::FunctionRef<absl::StatusOr<Json>(const Json& request)> answer);

// {"error": "line 3: ..."}, and how a stream with bad lines ends: OK or Aborted.
Json ErrorAnswer(int64_t line, const absl::Status& status);
absl::Status StreamEnd(int64_t num_errors, int64_t num_lines);

// Parts of a request. InvalidArgument names the key; a key that is absent leaves the value as it is, unless the name
// says that it is required.
absl::Status CheckKeys(const Json& request, std::initializer_list<const char*> known);
absl::Status ReadBool(const Json& request, const char* key, bool& value);
absl::Status ReadInt(const Json& request, const char* key, int64_t low, int64_t high, int64_t& value);
absl::Status ReadNumber(const Json& request, const char* key, double& value);
absl::StatusOr<std::string> RequiredText(const Json& request, const char* key);
absl::StatusOr<std::vector<std::string>> RequiredTexts(const Json& request, const char* key);
absl::StatusOr<std::vector<int32_t>> RequiredIds(const Json& request, const char* key);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_JSON_STREAM_H_
