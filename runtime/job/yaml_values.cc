#include "runtime/job/yaml_values.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/job/suggest.h"

namespace lockstep::job {
namespace {

std::string Shown(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "empty";
    case YamlNode::Kind::kSequence:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a section";
    case YamlNode::Kind::kScalar:
      break;
  }
  constexpr size_t kMaxShown = 60;
  const std::string text = node.text.size() > kMaxShown ? node.text.substr(0, kMaxShown) + "..." : node.text;
  return node.quoted ? absl::StrCat("\"", text, "\"") : text;
}

absl::Status Wrong(const YamlNode& node, const Field& field, const std::string& hint = "") {
  return absl::InvalidArgumentError(
      absl::StrCat(field.path, " is ", Shown(node), ": it must be ", FieldTypeText(field), hint));
}

std::string Lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The words that YAML 1.1 reads as booleans or null, in whatever case.
bool IsReservedWord(const std::string& text) {
  const std::string lower = Lower(text);
  for (const char* word : {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "~"}) {
    if (lower == word) return true;
  }
  return false;
}

// Sign and digits, with no leading zero: 010 is ten to some readers and eight to others.
bool HasLeadingZero(const std::string& text) {
  const size_t start = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return text.size() > start + 1 && text[start] == '0' && IsDigit(text[start + 1]);
}

template <typename T>
bool ParseNumber(const std::string& text, T* value) {
  const char* begin = text.data() + (!text.empty() && text[0] == '+' ? 1 : 0);
  if (begin != text.data() && *begin == '-') return false;
  const char* end = text.data() + text.size();
  T parsed;
  const auto result = std::from_chars(begin, end, parsed);
  if (result.ec != std::errc() || result.ptr != end || begin == end) return false;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(parsed)) return false;
  }
  *value = parsed;
  return true;
}

// Does a plain scalar read as a number?
bool IsNumber(const std::string& text) {
  double value;
  return ParseNumber(text, &value) || HasLeadingZero(text);
}

class Setter {
 public:
  Setter(const YamlNode& node, const Field& field) : node_(node), field_(field) {}

  absl::Status operator()(bool* target) const {
    if (!IsPlain()) return Wrong(node_, field_, QuoteHint());
    if (node_.text != "true" && node_.text != "false") return Wrong(node_, field_);
    *target = node_.text == "true";
    return absl::OkStatus();
  }

  absl::Status operator()(int32_t* target) const { return Integer(target); }
  absl::Status operator()(int64_t* target) const { return Integer(target); }
  absl::Status operator()(uint64_t* target) const { return Integer(target); }

  absl::Status operator()(double* target) const { return Real(target); }
  absl::Status operator()(float* target) const {
    double wide = 0;
    RETURN_IF_ERROR(Real(&wide));
    if (std::abs(wide) > std::numeric_limits<float>::max()) return Wrong(node_, field_, " that float32 can hold");
    *target = static_cast<float>(wide);
    return absl::OkStatus();
  }

  absl::Status operator()(std::string* target) const { return Text(node_, target); }

  absl::Status operator()(std::vector<std::string>* target) const {
    if (node_.kind != YamlNode::Kind::kSequence) return Wrong(node_, field_);
    std::vector<std::string> texts;
    for (const YamlNode& item : node_.items) RETURN_IF_ERROR(Text(item, &texts.emplace_back()));
    *target = std::move(texts);
    return absl::OkStatus();
  }

  absl::Status operator()(std::map<std::string, double>* target) const {
    if (node_.kind != YamlNode::Kind::kMap) return Wrong(node_, field_);
    std::map<std::string, double> numbers;
    for (const auto& [key, value] : node_.entries) {
      const Field entry{absl::StrCat(field_.path, ".", key), field_.comment, &numbers[key]};
      RETURN_IF_ERROR(SetField(value, entry));
    }
    *target = std::move(numbers);
    return absl::OkStatus();
  }

  absl::Status operator()(const AutoListField& list) const {
    if (IsPlain() && node_.text == "auto") {
      list.target->clear();
      return absl::OkStatus();
    }
    if (node_.kind != YamlNode::Kind::kSequence) return Wrong(node_, field_);
    if (node_.items.empty())
      return absl::InvalidArgumentError(field_.path + " is an empty list: write auto or name some");
    std::vector<int32_t> numbers;
    for (const YamlNode& item : node_.items) {
      const Field entry{absl::StrCat("an entry of ", field_.path), field_.comment, &numbers.emplace_back()};
      RETURN_IF_ERROR(SetField(item, entry));
    }
    *list.target = std::move(numbers);
    return absl::OkStatus();
  }

  absl::Status operator()(const EnumField& choice) const {
    if (node_.kind != YamlNode::Kind::kScalar) return Wrong(node_, field_);
    std::vector<std::string> names(choice.names.begin(), choice.names.end());
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == node_.text) {
        choice.set(i);
        return absl::OkStatus();
      }
    }
    return Wrong(node_, field_, DidYouMean(node_.text, names));
  }

 private:
  bool IsPlain() const { return node_.kind == YamlNode::Kind::kScalar && !node_.quoted; }
  const char* QuoteHint() const { return node_.quoted ? " without quotes" : ""; }

  template <typename T>
  absl::Status Integer(T* target) const {
    if (!IsPlain()) return Wrong(node_, field_, QuoteHint());
    if (HasLeadingZero(node_.text)) return Wrong(node_, field_, " without a leading zero (YAML reads it as octal)");
    if (ParseNumber(node_.text, target)) return absl::OkStatus();
    double real;
    const bool is_whole = ParseNumber(node_.text, &real) && node_.text.find_first_of(".eE") == std::string::npos;
    if (!is_whole) return Wrong(node_, field_);
    return Wrong(node_, field_,
                 absl::StrCat(" from ", std::numeric_limits<T>::min(), " to ", std::numeric_limits<T>::max()));
  }

  absl::Status Real(double* target) const {
    if (!IsPlain()) return Wrong(node_, field_, QuoteHint());
    if (HasLeadingZero(node_.text)) return Wrong(node_, field_, " without a leading zero");
    if (ParseNumber(node_.text, target)) return absl::OkStatus();
    return Wrong(node_, field_, " (finite, such as 0.5 or 1e-6)");
  }

  absl::Status Text(const YamlNode& node, std::string* target) const {
    if (node.kind != YamlNode::Kind::kScalar) return Wrong(node, field_);
    if (!node.quoted && (IsReservedWord(node.text) || IsNumber(node.text))) {
      return Wrong(node, field_, absl::StrCat(": YAML takes it for something else; write \"", node.text, "\""));
    }
    if (node.text.find('\0') != std::string::npos) return Wrong(node, field_, " without a zero byte");
    *target = node.text;
    return absl::OkStatus();
  }

  const YamlNode& node_;
  const Field& field_;
};

}  // namespace

absl::Status SetField(const YamlNode& node, const Field& field) {
  if (node.kind == YamlNode::Kind::kNull) {
    return absl::InvalidArgumentError(
        absl::StrCat(field.path, " is empty: it must be ", FieldTypeText(field), ", or leave the key out"));
  }
  return std::visit(Setter(node, field), field.value);
}

}  // namespace lockstep::job
