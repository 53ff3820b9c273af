// A YAML document as it was written: every value with its line, and whether it stood in quotes.
//
// What a YAML library decides silently is an error here, with file and line: duplicate keys, more documents than one,
// anchors, aliases, tags, keys that are not plain words.
#ifndef LOCKSTEP_RUNTIME_JOB_YAML_TREE_H_
#define LOCKSTEP_RUNTIME_JOB_YAML_TREE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::job {

struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  int line = 0;                 // from 1; of an empty value: where its key stands. 0: the document is empty
  std::string text;             // kScalar
  bool quoted = false;          // kScalar in quotes or written as a block
  std::vector<YamlNode> items;  // kSequence
  std::vector<std::pair<std::string, YamlNode>> entries;  // kMap, in the order of the file; keys are unique
};

// `name` is what messages call the text: a path, or "command line". InvalidArgument "<name>:<line>: ..."; an empty
// document is a kNull.
absl::StatusOr<YamlNode> ParseYaml(const std::string& text, const std::string& name);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_YAML_TREE_H_
