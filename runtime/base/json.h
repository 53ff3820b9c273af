// The JSON value that rooms exchange. Object keys keep their order (chat templates print them); include
// <nlohmann/json.hpp> only in .cc files that look inside a value.
#ifndef LOCKSTEP_RUNTIME_BASE_JSON_H_
#define LOCKSTEP_RUNTIME_BASE_JSON_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

// Strict: no comments, nothing after the value, depth at most 512. InvalidArgument names the byte offset.
absl::StatusOr<Json> ParseJson(const std::string& text);

// Compact form; invalid UTF-8 is replaced by U+FFFD, never thrown.
std::string DumpJson(const Json& value);

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_BASE_JSON_H_
