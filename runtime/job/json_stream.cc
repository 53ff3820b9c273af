#include "runtime/job/json_stream.h"

#include <cmath>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/formats/json_lines.h"
#include "runtime/job/suggest.h"

namespace lockstep::job {
namespace {

absl::Status Wrong(const char* key, const char* wanted) {
  return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" must be ", wanted));
}

absl::Status Missing(const char* key) { return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is missing")); }

}  // namespace

absl::Status ServeJsonLines(std::istream& in, std::ostream& out,
                            absl::FunctionRef<absl::StatusOr<Json>(const Json& request)> answer) {
  int64_t num_lines = 0;
  int64_t num_errors = 0;
  for (std::string text; std::getline(in, text);) {
    ++num_lines;
    absl::StatusOr<Json> result = formats::ParseJsonLine(text, "not a request");
    if (result.ok()) result = answer(*result);
    if (!result.ok()) ++num_errors;
    out << DumpJson(result.ok() ? *result : ErrorAnswer(num_lines, result.status())) << "\n";
    out.flush();
    if (!out) return absl::UnavailableError("the output is closed");
  }
  return StreamEnd(num_errors, num_lines);
}

Json ErrorAnswer(int64_t line, const absl::Status& status) {
  Json answer = Json::object();
  answer["error"] = absl::StrCat("line ", line, ": ", Message(status));
  return answer;
}

absl::Status StreamEnd(int64_t num_errors, int64_t num_lines) {
  if (num_errors == 0) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(num_errors, " of ", num_lines, " lines were answered by an error"));
}

absl::Status CheckKeys(const Json& request, std::initializer_list<const char*> known) {
  for (const auto& [key, value] : request.items()) {
    bool found = false;
    for (const char* name : known) found = found || key == name;
    if (found) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    return absl::InvalidArgumentError(absl::StrCat("unknown key \"", key, "\"", DidYouMean(key, names)));
  }
  return absl::OkStatus();
}

absl::Status ReadBool(const Json& request, const char* key, bool& value) {
  const auto found = request.find(key);
  if (found == request.end()) return absl::OkStatus();
  if (!found->is_boolean()) return Wrong(key, "true or false");
  value = found->get<bool>();
  return absl::OkStatus();
}

absl::Status ReadInt(const Json& request, const char* key, int64_t low, int64_t high, int64_t& value) {
  const auto found = request.find(key);
  if (found == request.end()) return absl::OkStatus();
  const std::string wanted = absl::StrCat("a whole number from ", low, " to ", high);
  if (!found->is_number_integer()) return Wrong(key, wanted.c_str());
  // A number above int64 is stored as unsigned and would come out negative.
  if (found->is_number_unsigned() &&
      found->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Wrong(key, wanted.c_str());
  }
  const auto number = found->get<int64_t>();
  if (number < low || number > high) return Wrong(key, wanted.c_str());
  value = number;
  return absl::OkStatus();
}

absl::Status ReadNumber(const Json& request, const char* key, double& value) {
  const auto found = request.find(key);
  if (found == request.end()) return absl::OkStatus();
  if (!found->is_number() || !std::isfinite(found->get<double>())) return Wrong(key, "a number");
  value = found->get<double>();
  return absl::OkStatus();
}

absl::StatusOr<std::string> RequiredText(const Json& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end()) return Missing(key);
  if (!found->is_string()) return Wrong(key, "a text");
  return found->get<std::string>();
}

absl::StatusOr<std::vector<std::string>> RequiredTexts(const Json& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end()) return Missing(key);
  if (!found->is_array()) return Wrong(key, "a list of texts");
  std::vector<std::string> texts;
  for (const Json& item : *found) {
    if (!item.is_string()) return Wrong(key, "a list of texts");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

absl::StatusOr<std::vector<int32_t>> RequiredIds(const Json& request, const char* key) {
  constexpr const char* kWanted = "a list of token ids";
  const auto found = request.find(key);
  if (found == request.end()) return Missing(key);
  if (!found->is_array()) return Wrong(key, kWanted);
  std::vector<int32_t> ids;
  ids.reserve(found->size());
  for (const Json& item : *found) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      return Wrong(key, kWanted);
    }
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

}  // namespace lockstep::job
