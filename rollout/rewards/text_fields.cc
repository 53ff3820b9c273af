#include "rollout/rewards/text_fields.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/base/json.h"
#include "runtime/base/status.h"

namespace lockstep::rollout {
namespace {

constexpr char kWhiteSpace[] = " \t\n\v\f\r";
constexpr char kUnicodeMinus[] = "\xe2\x88\x92";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsDigitAt(const std::string& text, size_t at) { return at < text.size() && IsDigit(text[at]); }
// Characters that end an operand, so that a minus behind them subtracts.
bool EndsOperand(char c) { return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ')'; }

size_t EndOfDigits(const std::string& text, size_t at) {
  while (IsDigitAt(text, at)) ++at;
  return at;
}

// Behind the digits at `at` and the groups ",ddd" that follow one to three of them.
size_t EndOfGroups(const std::string& text, size_t at) {
  size_t end = EndOfDigits(text, at);
  if (end - at > 3) return end;
  while (end < text.size() && text[end] == ',' && EndOfDigits(text, end + 1) == end + 4) end += 4;
  return end;
}

std::string Canonical(bool negative, const std::string& whole, const std::string& fraction) {
  std::string digits;
  for (const char c : whole) {
    if (c != ',' && !(c == '0' && digits.empty())) digits += c;
  }
  if (digits.empty()) digits = "0";
  const size_t last = fraction.find_last_not_of('0');
  if (last != std::string::npos) digits += "." + fraction.substr(0, last + 1);
  return (negative && digits != "0" ? "-" : "") + digits;
}

// Bytes of the minus that ends at `end` and belongs to the number there.
size_t SignBytes(const std::string& text, size_t end) {
  size_t bytes = 0;
  if (end >= 1 && text[end - 1] == '-') bytes = 1;
  if (end >= 3 && text.compare(end - 3, 3, kUnicodeMinus) == 0) bytes = 3;
  return bytes > 0 && (end == bytes || !EndsOperand(text[end - bytes - 1])) ? bytes : 0;
}

}  // namespace

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

absl::StatusOr<std::string> AnswerOf(const std::string& row_json, const std::string& field) {
  ASSIGN_OR_RETURN(const Json row, ParseJson(row_json));
  if (!row.is_object() || !row.contains(field)) {
    return absl::InvalidArgumentError(absl::StrCat("the row has no \"", field, "\""));
  }
  const Json& value = row[field];
  if (!value.is_string() && !value.is_number()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", field, "\" of the row is neither a text nor a number"));
  }
  std::string answer = Trim(value.is_string() ? value.get<std::string>() : DumpJson(value));
  if (answer.empty()) return absl::InvalidArgumentError(absl::StrCat("\"", field, "\" of the row is empty"));
  return answer;
}

Number LastNumber(const std::string& text) {
  Number last;
  for (size_t at = 0; at < text.size();) {
    if (!IsDigit(text[at])) {
      ++at;
      continue;
    }
    const size_t whole_end = EndOfGroups(text, at);
    size_t end = whole_end;
    if (end < text.size() && text[end] == '.' && IsDigitAt(text, end + 1)) end = EndOfDigits(text, end + 1);
    const std::string fraction = end > whole_end ? text.substr(whole_end + 1, end - whole_end - 1) : "";
    const size_t sign = SignBytes(text, at);
    last.canonical = Canonical(sign > 0, text.substr(at, whole_end - at), fraction);
    last.whole = at == sign && end == text.size();
    at = end;
  }
  return last;
}

}  // namespace lockstep::rollout
