#include "runtime/source/prompt_source.h"

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

absl::Status CheckRow(const Json& row, const std::string& where) {
  const auto bad = [&](const std::string& what) { return absl::InvalidArgumentError(absl::StrCat(where, ": ", what)); };
  const bool has_messages = row.contains("messages"), has_prompt = row.contains("prompt");
  if (has_messages && has_prompt) return bad("the row has both \"messages\" and \"prompt\": keep one");
  if (!has_messages && !has_prompt) return bad("the row has neither \"messages\" nor \"prompt\"");
  if (has_prompt) return row["prompt"].is_string() ? absl::OkStatus() : bad("\"prompt\" must be a text");
  if (!row["messages"].is_array() || row["messages"].empty())
    return bad("\"messages\" must be a list that is not empty");
  for (size_t i = 0; i < row["messages"].size(); ++i) {
    const Json& message = row["messages"][i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      return bad(absl::StrCat("message ", i, " has no \"role\""));
    }
    if (!message.contains("content")) return bad(absl::StrCat("message ", i, " has no \"content\""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PromptSource> PromptSource::Open(const PromptSourceOptions& options) {
  PromptSource source;
  source.options_ = options;
  for (const std::string& path : options.files) {
    ASSIGN_OR_RETURN(formats::JsonLinesReader reader, formats::JsonLinesReader::Open(path));
    formats::JsonLine line;
    while (true) {
      ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
      if (!more) break;
      std::string where = absl::StrCat(path, ":", line.number);
      RETURN_IF_ERROR(CheckRow(*line.value, where));
      source.rows_.push_back({DumpJson(*line.value), std::move(where)});
    }
  }
  if (source.rows_.empty()) return absl::InvalidArgumentError("the data files hold no rows");
  return source;
}

Prompt PromptSource::At(int64_t ordinal) {
  CHECK_GE(ordinal, 0);
  const int64_t epoch = ordinal / num_rows(), place = ordinal % num_rows();
  if (epoch != epoch_) {
    epoch_ = epoch;
    order_.resize(rows_.size());
    std::iota(order_.begin(), order_.end(), 0);
    // Fisher and Yates; draw i of an epoch is a pure function of (seed, epoch, i).
    const RandomKey key{options_.seed, RandomPurpose::kShuffle};
    for (int64_t i = num_rows() - 1; options_.shuffle && i > 0; --i) {
      const uint32_t j = UniformBelow(key, {.ordinal = epoch, .draw = i}, static_cast<uint64_t>(i) + 1);
      std::swap(order_[i], order_[j]);
    }
  }
  const Row& row = rows_[order_[place]];
  return {ordinal, row.json, row.location};
}

}  // namespace lockstep::source
