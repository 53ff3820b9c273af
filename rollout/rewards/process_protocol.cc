#include "rollout/rewards/process_protocol.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/json.h"
#include "runtime/base/status.h"
#include "runtime/formats/quote.h"

namespace lockstep::rollout {
namespace {

// Bytes of the number at `at` that Python writes and JSON does not have; 0 if there is none.
size_t PythonNumberBytes(const std::string& line, size_t at) {
  for (const std::string_view name : {"NaN", "Infinity", "-Infinity"}) {
    if (line.compare(at, name.size(), name) == 0) return name.size();
  }
  return 0;
}

// Those numbers become null, except inside texts.
std::string WithoutPythonNumbers(const std::string& line) {
  std::string out;
  bool in_text = false;
  for (size_t at = 0; at < line.size();) {
    const size_t skipped = in_text ? 0 : PythonNumberBytes(line, at);
    if (skipped > 0) {
      out += "null";
      at += skipped;
      continue;
    }
    const size_t bytes = in_text && line[at] == '\\' ? 2 : 1;  // an escaped quote does not end a text
    if (bytes == 1 && line[at] == '"') in_text = !in_text;
    out += line.substr(at, bytes);
    at += bytes;
  }
  return out;
}

bool Present(const Json& object, const char* name) { return object.contains(name) && !object[name].is_null(); }

RewardResult Invalid(std::string reason) {
  RewardResult result;
  result.error = std::move(reason);
  return result;
}

RewardResult NotFinite(const std::string& what) { return Invalid(what + " is not a finite number"); }

absl::StatusOr<RewardResult> WeightedSum(const Json& rewards, const std::map<std::string, double>& weights,
                                         bool null_is_not_finite) {
  RewardResult result;
  if (!rewards.is_object() || rewards.empty()) {
    return absl::InvalidArgumentError("\"rewards\" must be an object that names at least one number");
  }
  for (const auto& [name, value] : rewards.items()) {
    if (value.is_null() && null_is_not_finite) return NotFinite(absl::StrCat("the reward ", formats::Quote(name)));
    if (!value.is_number()) return absl::InvalidArgumentError(absl::StrCat(formats::Quote(name), " is no number"));
    const auto weight = weights.find(name);
    result.parts[name] = value.get<double>();
    result.reward += (weight == weights.end() ? 1.0 : weight->second) * value.get<double>();
  }
  return std::isfinite(result.reward) ? result : NotFinite("the weighted sum of the rewards");
}

absl::StatusOr<RewardResult> ReadAnswer(const Json& answer, const std::string& id,
                                        const std::map<std::string, double>& weights, bool null_is_not_finite) {
  if (!answer.is_object()) return absl::InvalidArgumentError("not a JSON object");
  if (!answer.contains("id")) return absl::InvalidArgumentError("no \"id\"");
  if (answer["id"] != id) return absl::InvalidArgumentError("the \"id\" is not the request's, " + formats::Quote(id));
  if (Present(answer, "error")) {
    const Json& error = answer["error"];
    const std::string text = error.is_string() ? error.get<std::string>() : DumpJson(error);
    return Invalid(text.empty() ? "the reward process reported an error without a reason" : text);
  }
  if (Present(answer, "rewards")) return WeightedSum(answer["rewards"], weights, null_is_not_finite);
  if (answer.contains("reward") && answer["reward"].is_null() && null_is_not_finite) return NotFinite("the reward");
  if (!Present(answer, "reward")) return absl::InvalidArgumentError("no \"reward\", \"rewards\" or \"error\"");
  if (!answer["reward"].is_number()) return absl::InvalidArgumentError("\"reward\" is no number");
  RewardResult result;
  result.reward = answer["reward"].get<double>();
  return result;
}

}  // namespace

absl::StatusOr<std::string> ToRequestLine(const RewardRequest& request) {
  ASSIGN_OR_RETURN(const Json row, ParseJson(request.row_json));
  if (!row.is_object()) return absl::InvalidArgumentError("the row is not a JSON object");
  Json line = {{"id", request.id}};
  if (row.contains("messages")) {
    line["messages"] = row["messages"];
  } else {
    const Json prompt = row.contains("prompt") ? row["prompt"] : Json("");
    line["messages"] = Json::array({{{"role", "user"}, {"content", prompt}}});
  }
  line["completion"] = request.completion;
  line["finish_reason"] = request.finish_reason;
  for (const auto& [name, value] : row.items()) {
    if (!line.contains(name)) line[name] = value;
  }
  return DumpJson(line);
}

absl::StatusOr<RewardResult> ParseAnswer(const std::string& line, const std::string& id,
                                         const std::map<std::string, double>& weights) {
  absl::StatusOr<Json> answer = ParseJson(line);
  const std::string error = Message(answer.status());
  bool has_python_numbers = false;
  if (!answer.ok()) {
    answer = ParseJson(WithoutPythonNumbers(line));
    has_python_numbers = answer.ok();
  }
  absl::StatusOr<RewardResult> result = absl::InvalidArgumentError(error);
  if (answer.ok()) result = ReadAnswer(*answer, id, weights, has_python_numbers);
  if (result.ok()) return result;
  return absl::InvalidArgumentError(
      absl::StrCat("its answer ", formats::Quote(line), " cannot be used: ", result.status().message()));
}

}  // namespace lockstep::rollout
