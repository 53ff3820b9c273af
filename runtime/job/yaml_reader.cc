#include "runtime/job/yaml_reader.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/job/contradictions.h"
#include "runtime/job/foreign_names.h"
#include "runtime/job/suggest.h"
#include "runtime/job/yaml_tree.h"
#include "runtime/job/yaml_values.h"

namespace lockstep::job {
namespace {

constexpr char kCommandLine[] = "command line";

std::string SectionOf(const std::string& path) { return path.substr(0, path.find('.')); }

std::vector<std::string> SectionNames(const FieldList& list) {
  std::vector<std::string> names;
  for (const FieldList::Section& section : list.sections()) names.push_back(section.path);
  return names;
}

// What may have been meant by an unknown "section.key": the same key of another section, or else the nearest key of
// its own section, or of all.
std::string DidYouMeanPath(const std::string& path, const FieldList& list) {
  const size_t dot = path.find('.');
  const std::string section = path.substr(0, dot);
  const std::string key = dot == std::string::npos ? path : path.substr(path.rfind('.') + 1);
  if (const char* ours = FindForeignName(key)) return absl::StrCat("; here it is ", ours);
  std::vector<std::string> own;
  std::vector<std::string> all;
  for (const Field& field : list.fields()) {
    if (field.path.substr(field.path.find('.') + 1) == key) return absl::StrCat("; did you mean ", field.path, "?");
    all.push_back(field.path);
    if (SectionOf(field.path) == section) own.push_back(field.path);
  }
  const std::string hint = DidYouMean(path, own);
  return hint.empty() ? DidYouMean(path, all) : hint;
}

class Reader {
 public:
  explicit Reader(Config& config) : config_(config), list_(ListFields(config.options)) {}

  absl::Status ReadDocument(const YamlNode& root, const std::string& name) {
    if (root.kind == YamlNode::Kind::kNull) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": holds no options; `lockstep config` prints them all"));
    }
    if (root.kind != YamlNode::Kind::kMap) {
      return absl::InvalidArgumentError(absl::StrCat(name, ":", root.line, ": must hold sections such as `run:`"));
    }
    for (const auto& [key, node] : root.entries) {
      RETURN_IF_ERROR(ReadSection(key, node, name));
    }
    return absl::OkStatus();
  }

  absl::Status ReadOverride(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(absl::StrCat(kCommandLine, ": ", text, " must be section.key=value"));
    }
    const std::string path = text.substr(0, equals);
    const std::string value = text.substr(equals + 1);
    const Field* field = list_.Find(path);
    if (field == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(kCommandLine, ": unknown key ", path, DidYouMeanPath(path, list_)));
    }
    const auto written = config_.written_at.find(path);
    if (written != config_.written_at.end() && written->second == kCommandLine) {
      return absl::InvalidArgumentError(absl::StrCat(kCommandLine, ": ", path, " is given twice"));
    }
    return Set(*field, value);
  }

  // Prefixes a message of Validate() with the places of the options that it names.
  absl::Status Locate(const absl::Status& status) const {
    if (status.ok()) return status;
    const std::string message = Message(status);
    std::vector<std::pair<size_t, std::string>> places;
    for (const auto& [path, place] : config_.written_at) {
      const size_t at = FindWord(message, path);
      if (at != std::string::npos) places.emplace_back(at, absl::StrCat(place, ": "));
    }
    if (places.empty()) return status;
    std::sort(places.begin(), places.end());
    std::string also;
    for (size_t i = 1; i < places.size(); ++i) {
      if (places[i].second == places[i - 1].second) continue;
      absl::StrAppend(&also, also.empty() ? " (also " : ", ", places[i].second.substr(0, places[i].second.size() - 2));
    }
    if (!also.empty()) also += ")";
    return absl::Status(status.code(), absl::StrCat(places[0].second, message, also));
  }

 private:
  absl::Status ReadSection(const std::string& section, const YamlNode& node, const std::string& name) {
    const std::vector<std::string> names = SectionNames(list_);
    const std::string place = absl::StrCat(name, ":", node.line, ": ");
    if (std::find(names.begin(), names.end(), section) == names.end()) {
      const bool foreign = FindForeignName(section) != nullptr;
      const std::string hint = foreign ? "" : DidYouMean(section, names);
      return absl::InvalidArgumentError(
          absl::StrCat(place, "unknown key ", section, hint.empty() ? DidYouMeanPath(section, list_) : hint));
    }
    if (node.kind == YamlNode::Kind::kNull) {
      return absl::InvalidArgumentError(absl::StrCat(place, section, " is empty: give it options or leave it out"));
    }
    if (node.kind != YamlNode::Kind::kMap) {
      return absl::InvalidArgumentError(absl::StrCat(place, section, " must be a section of options"));
    }
    for (const auto& [key, value] : node.entries) {
      const std::string path = absl::StrCat(section, ".", key);
      const std::string value_place = absl::StrCat(name, ":", value.line);
      const Field* field = list_.Find(path);
      if (field == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat(value_place, ": unknown key ", path, DidYouMeanPath(path, list_)));
      }
      RETURN_IF_ERROR(AddContext(SetField(value, *field), value_place));
      config_.written_at[path] = value_place;
    }
    return absl::OkStatus();
  }

  absl::Status Set(const Field& field, const std::string& value) {
    YamlNode node;
    const bool quoted = !value.empty() && (value[0] == '"' || value[0] == '\'');
    if (std::holds_alternative<std::string*>(field.value) && !quoted) {
      node.kind = YamlNode::Kind::kScalar;
      node.text = value;
      node.quoted = true;  // the characters as they are
    } else {
      ASSIGN_OR_RETURN(node, ParseYaml(value, absl::StrCat(kCommandLine, ": ", field.path)));
    }
    RETURN_IF_ERROR(AddContext(SetField(node, field), kCommandLine));
    config_.written_at[field.path] = kCommandLine;
    return absl::OkStatus();
  }

  // Position of `word` in `text` where no longer option name surrounds it.
  static size_t FindWord(const std::string& text, const std::string& word) {
    const auto is_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      const size_t end = at + word.size();
      if ((at == 0 || !is_name(text[at - 1])) && (end == text.size() || !is_name(text[end]))) return at;
    }
    return std::string::npos;
  }

  Config& config_;
  const FieldList list_;
};

}  // namespace

absl::StatusOr<Config> ParseConfig(const std::string& yaml, const std::string& name,
                                   const std::vector<std::string>& overrides) {
  Config config;
  {
    Reader reader(config);
    ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(yaml, name));
    RETURN_IF_ERROR(reader.ReadDocument(root, name));
    for (const std::string& text : overrides) RETURN_IF_ERROR(reader.ReadOverride(text));
    RETURN_IF_ERROR(CheckContradictions(config.options, config.written_at));
    RETURN_IF_ERROR(reader.Locate(config.options.Validate()));
  }
  return config;
}

absl::StatusOr<Config> ReadConfig(const std::string& path, const std::vector<std::string>& overrides) {
  absl::StatusOr<std::string> yaml = ReadFile(path);
  if (!yaml.ok()) return AddContext(yaml.status(), "reading the configuration");
  return ParseConfig(*yaml, path, overrides);
}

}  // namespace lockstep::job
