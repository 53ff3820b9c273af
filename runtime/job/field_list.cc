#include "runtime/job/field_list.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::job {
namespace {

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

// Shortest text that reads back as the same bits.
template <typename T>
std::string NumberText(T value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  return std::string(buffer, end);
}

bool IsPlainSafe(const std::string& text) {
  if (text.empty()) return false;
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '/';
  };
  if (!is_letter(text[0])) return false;
  for (char c : text) {
    if (!is_letter(c) && !(c >= '0' && c <= '9') && c != '.' && c != '-') return false;
  }
  // Words that YAML readers take for something else than text, in any case.
  std::string lower = text;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  for (const char* word : {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "auto"}) {
    if (lower == word) return false;
  }
  return true;
}

std::string StringText(const std::string& text) {
  if (IsPlainSafe(text)) return text;
  std::string quoted = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      constexpr char kHex[] = "0123456789abcdef";
      quoted += "\\x";
      quoted += kHex[byte >> 4];
      quoted += kHex[byte & 15];
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string MapText(const std::map<std::string, double>& map) {
  std::vector<std::string> entries;
  for (const auto& [key, number] : map) entries.push_back(absl::StrCat(StringText(key), ": ", NumberText(number)));
  return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
}

}  // namespace

void FieldList::BeginSection(const char* name, const char* comment) { sections_.push_back({name, comment}); }

std::string FieldList::PathOf(const char* key) const {
  return sections_.empty() ? key : absl::StrCat(sections_.back().path, ".", key);
}

void FieldList::AddChoice(const char* key, std::string* target, const std::vector<const char*>& names,
                          const char* comment) {
  EnumField field;
  field.target = target;
  field.names = names;
  field.get = [target, names] {
    return static_cast<size_t>(std::find(names.begin(), names.end(), *target) - names.begin());
  };
  field.set = [target, names](size_t index) { *target = names[index]; };
  fields_.push_back({PathOf(key), comment, std::move(field)});
}

const Field* FieldList::Find(std::string_view path) const {
  for (const Field& field : fields_) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

std::string FieldText(const Field& field) {
  return std::visit(Overloaded{
                        [](const bool* value) { return std::string(*value ? "true" : "false"); },
                        [](const std::string* value) { return StringText(*value); },
                        [](const std::vector<std::string>* value) {
                          std::vector<std::string> entries;
                          for (const std::string& text : *value) entries.push_back(StringText(text));
                          return absl::StrCat("[", absl::StrJoin(entries, ", "), "]");
                        },
                        [](const std::map<std::string, double>* value) { return MapText(*value); },
                        [](const AutoListField& value) {
                          if (value.target->empty()) return std::string("auto");
                          return absl::StrCat("[", absl::StrJoin(*value.target, ", "), "]");
                        },
                        [](const EnumField& value) { return std::string(value.names.at(value.get())); },
                        [](const auto* number) { return NumberText(*number); },
                    },
                    field.value);
}

std::string FieldTypeText(const Field& field) {
  return std::visit(
      Overloaded{
          [](const bool*) { return std::string("true or false"); },
          [](const float*) { return std::string("a number"); },
          [](const double*) { return std::string("a number"); },
          [](const std::string*) { return std::string("a text"); },
          [](const std::vector<std::string>*) { return std::string("a list of texts such as [a, b]"); },
          [](const std::map<std::string, double>*) {
            return std::string("numbers by name such as {correct: 1, short: 0.1}");
          },
          [](const AutoListField&) { return std::string("auto or a list of whole numbers such as [1, 2]"); },
          [](const EnumField& value) { return absl::StrCat("one of ", absl::StrJoin(value.names, ", ")); },
          [](const auto*) { return std::string("a whole number"); },
      },
      field.value);
}

}  // namespace lockstep::job
