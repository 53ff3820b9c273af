#include "runtime/source/prompt_source.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/base/philox.h"
#include "runtime/base/status.h"
#include "runtime/formats/json_lines.h"

namespace lockstep::source {
namespace {

// Rows are counted in int32 places of an epoch's order.
constexpr size_t kMaxRows = std::numeric_limits<int32_t>::max();

// A text, a list of parts (objects), or null beside the tool calls that stand in its place.
absl::Status CheckContent(const Json& message) {
  const bool calls = message.contains("tool_calls") && message["tool_calls"].is_array();
  if (!message.contains("content") || message["content"].is_null()) {
    return calls ? absl::OkStatus() : absl::InvalidArgumentError("has no \"content\"");
  }
  const Json& content = message["content"];
  if (content.is_string()) return absl::OkStatus();
  const bool parts = content.is_array() && !content.empty() &&
                     std::all_of(content.begin(), content.end(), [](const Json& part) { return part.is_object(); });
  return parts ? absl::OkStatus()
               : absl::InvalidArgumentError("has a \"content\" that is neither a text nor a list of parts");
}

absl::Status CheckMessage(const Json& message) {
  if (!message.is_object()) return absl::InvalidArgumentError("is not an object");
  if (!message.contains("role")) return absl::InvalidArgumentError("has no \"role\"");
  if (!message["role"].is_string() || message["role"] == "") {
    return absl::InvalidArgumentError("has a \"role\" that is not a name such as \"user\"");
  }
  return CheckContent(message);
}

absl::Status CheckRow(const Json& row) {
  const bool has_messages = row.contains("messages"), has_prompt = row.contains("prompt");
  if (has_messages && has_prompt) {
    return absl::InvalidArgumentError("the row has both \"messages\" and \"prompt\": keep one");
  }
  if (has_prompt) {
    if (!row["prompt"].is_string()) return absl::InvalidArgumentError("\"prompt\" must be a text");
    return row["prompt"] == "" ? absl::InvalidArgumentError("\"prompt\" is empty") : absl::OkStatus();
  }
  if (!has_messages) {
    return absl::InvalidArgumentError("the row has neither \"messages\" nor \"prompt\": give one of them");
  }
  const Json& messages = row["messages"];
  if (!messages.is_array() || messages.empty()) {
    return absl::InvalidArgumentError("\"messages\" must be a list that is not empty");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const absl::Status status = CheckMessage(messages[i]);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("message ", i, " ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PromptSource> PromptSource::Open(const PromptSourceOptions& options) {
  if (options.files.empty()) return absl::InvalidArgumentError("no data files are given");
  PromptSource source;
  source.options_ = options;
  for (const std::string& path : options.files) RETURN_IF_ERROR(source.Append(path));
  return source;
}

absl::Status PromptSource::Append(const std::string& path) {
  ASSIGN_OR_RETURN(formats::JsonLinesReader reader, formats::JsonLinesReader::Open(path));
  const size_t rows_before = rows_.size();
  formats::JsonLine line;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) break;
    std::string location = absl::StrCat(path, ":", line.number);
    RETURN_IF_ERROR(AddContext(CheckRow(*line.value), location));
    if (rows_.size() == kMaxRows) return absl::InvalidArgumentError(absl::StrCat(location, ": too many rows"));
    rows_.push_back({DumpJson(*line.value), std::move(location)});
  }
  if (rows_.size() == rows_before) return absl::InvalidArgumentError(path + " holds no rows");
  return absl::OkStatus();
}

void PromptSource::Arrange(int64_t epoch) {
  epoch_ = epoch;
  order_.resize(rows_.size());
  std::iota(order_.begin(), order_.end(), 0);
  if (!options_.shuffle) return;
  // Fisher and Yates; draw i of an epoch is a pure function of (seed, epoch, i).
  const RandomKey key{options_.seed, RandomPurpose::kShuffle};
  for (int64_t i = num_rows() - 1; i > 0; --i) {
    const uint32_t j = UniformBelow(key, {.ordinal = epoch, .draw = i}, static_cast<uint64_t>(i) + 1);
    std::swap(order_[i], order_[j]);
  }
}

Prompt PromptSource::At(int64_t ordinal) {
  CHECK_GE(ordinal, 0);
  const int64_t epoch = ordinal / num_rows();
  if (epoch != epoch_) Arrange(epoch);
  const Row& row = rows_[order_[ordinal % num_rows()]];
  return {ordinal, row.json, row.location};
}

}  // namespace lockstep::source
