#include "runtime/base/json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace lockstep {
namespace {

constexpr int kMaxDepth = 512;

// The parser recurses when a deep value is destroyed; a depth far below any stack limit keeps hostile files harmless.
bool DeeperThan(const std::string& text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limit) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<Json> ParseJson(const std::string& text) {
  if (DeeperThan(text, kMaxDepth)) {
    return absl::InvalidArgumentError(absl::StrCat("JSON is nested deeper than ", kMaxDepth));
  }
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON at byte ", error.byte));
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON: ", error.what()));
  }
}

std::string DumpJson(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace lockstep
