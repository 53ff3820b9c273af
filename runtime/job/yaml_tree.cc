#include "runtime/job/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <sstream>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace lockstep::job {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr size_t kMaxDepth = 32;

// Builds the tree from the parser's events. The first error is kept and the rest of the document is ignored.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& name) : name_(name) {}

  absl::StatusOr<YamlNode> Finish() && {
    if (!error_.ok()) return error_;
    return std::move(root_);
  }
  const absl::Status& error() const { return error_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode node;
    // The mark of a value that is not there is the next token's, which may be lines further down.
    node.line = pending_line_ > 0 ? pending_line_ : Line(mark);
    Place(std::move(node), mark, "", anchor, /*is_null=*/true);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Fail(mark, "aliases (*name) are not supported: write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.line = Line(mark);
    node.text = value;
    node.quoted = tag == "!";
    Place(std::move(node), mark, tag, anchor, /*is_null=*/false);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  // A container that is not closed yet.
  struct OpenNode {
    YamlNode node;
    bool has_key = false;  // a map that waits for the value of `key`
    std::string key;
    int key_line = 0;
  };

  static int Line(const YAML::Mark& mark) { return mark.line + 1; }

  void FailAt(int line, const std::string& message) {
    if (error_.ok()) error_ = absl::InvalidArgumentError(absl::StrCat(name_, ":", line, ": ", message));
  }
  void Fail(const YAML::Mark& mark, const std::string& message) { FailAt(Line(mark), message); }

  bool Allowed(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (!error_.ok()) return false;
    if (anchor != YAML::NullAnchor) {
      Fail(mark, "anchors (&name) are not supported: write the value out");
    } else if (!tag.empty() && tag != "?" && tag != "!") {
      Fail(mark, absl::StrCat("tags (", tag, ") are not supported: the option decides the type"));
    }
    return error_.ok();
  }

  void Open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (!Allowed(mark, tag, anchor)) return;
    if (!open_.empty() && open_.back().node.kind == YamlNode::Kind::kMap && !open_.back().has_key) {
      return Fail(mark, "a key must be a word");
    }
    if (open_.size() >= kMaxDepth) return Fail(mark, "nested too deeply");
    OpenNode node;
    node.node.kind = kind;
    node.node.line = Line(mark);
    open_.push_back(std::move(node));
    pending_line_ = 0;
  }

  void Close() {
    if (!error_.ok()) return;
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    Attach(std::move(node));
  }

  // A value or a key, whichever the open container waits for.
  void Place(YamlNode node, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, bool is_null) {
    if (!Allowed(mark, tag, anchor)) return;
    if (!open_.empty() && open_.back().node.kind == YamlNode::Kind::kMap && !open_.back().has_key) {
      return is_null ? Fail(mark, "a key must be a word") : TakeKey(node);
    }
    Attach(std::move(node));
  }

  void TakeKey(const YamlNode& key) {
    OpenNode& map = open_.back();
    for (const auto& [known, value] : map.node.entries) {
      if (known == key.text) {
        return FailAt(key.line, absl::StrCat("duplicate key ", key.text, " (first at line ", value.line, ")"));
      }
    }
    map.has_key = true;
    map.key = key.text;
    map.key_line = key.line;
    pending_line_ = key.line;
  }

  void Attach(YamlNode node) {
    pending_line_ = 0;
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (open_.back().node.kind == YamlNode::Kind::kSequence) {
      open_.back().node.items.push_back(std::move(node));
    } else {
      OpenNode& map = open_.back();
      node.line = map.key_line;  // a block value starts below its key: people look for the key
      map.node.entries.emplace_back(std::move(map.key), std::move(node));
      map.has_key = false;
    }
  }

  const std::string& name_;
  absl::Status error_;
  YamlNode root_;
  std::vector<OpenNode> open_;
  int pending_line_ = 0;  // line of the key whose value comes next; 0: none
};

}  // namespace

absl::StatusOr<YamlNode> ParseYaml(const std::string& text, const std::string& name) {
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", text.size(), " bytes are too many for a configuration"));
  }
  std::istringstream stream(text);
  TreeBuilder builder(name);
  try {
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      RETURN_IF_ERROR(builder.error());
      TreeBuilder second(name);
      if (parser.HandleNextDocument(second)) {
        return absl::InvalidArgumentError(absl::StrCat(name, ": holds more than one document (---): keep one"));
      }
    }
  } catch (const YAML::Exception& error) {
    RETURN_IF_ERROR(builder.error());
    return absl::InvalidArgumentError(absl::StrCat(name, ":", error.mark.line + 1, ": ", error.msg));
  }
  return std::move(builder).Finish();
}

}  // namespace lockstep::job
