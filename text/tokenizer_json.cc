// tokenizer.json of Hugging Face's tokenizers: reading and writing.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "text/tokenizer_impl.h"

namespace lockstep::text {

const char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char kDigitPattern[] = R"(\p{N})";

namespace {

// Sorted objects: a vocabulary has 100,000 entries and more, and the ordered kind searches linearly.
using Tree = nlohmann::json;

absl::StatusOr<Tree> ParseTree(const std::string& text) {
  Tree tree = Tree::parse(text, nullptr, /*allow_exceptions=*/false);
  if (tree.is_discarded()) return absl::InvalidArgumentError("this is not valid JSON");
  return tree;
}

absl::Status Bad(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}
absl::Status Unsupported(const std::string& path, const std::string& what) {
  return absl::UnimplementedError(absl::StrCat(path, ": ", what, " is not supported yet"));
}

std::string TypeOf(const Tree& part) { return part.is_object() ? part.value("type", std::string()) : std::string(); }

// Ids up to twice the number of entries: a hole or two is fine, a hostile id is not.
absl::Status PutToken(const std::string& path, int64_t id, const std::string& token, size_t limit,
                      TokenizerSpec& spec) {
  if (id < 0 || id >= static_cast<int64_t>(limit))
    return Bad(path, absl::StrCat("token '", token, "' has the id ", id));
  if (id >= static_cast<int64_t>(spec.tokens.size())) spec.tokens.resize(static_cast<size_t>(id) + 1);
  std::string& slot = spec.tokens[static_cast<size_t>(id)];
  if (!slot.empty() && slot != token) {
    return Bad(path, absl::StrCat("tokens '", slot, "' and '", token, "' share the id ", id));
  }
  slot = token;
  return absl::OkStatus();
}

absl::Status ReadModel(const std::string& path, const Tree& model, size_t limit, TokenizerSpec& spec) {
  if (TypeOf(model) != "BPE") return Unsupported(path, absl::StrCat("a model of type '", TypeOf(model), "'"));
  if (model.value("byte_fallback", false)) return Unsupported(path, "byte fallback");
  if (!model.contains("vocab") || !model["vocab"].is_object()) return Bad(path, "model.vocab is missing");
  for (const auto& [token, id] : model["vocab"].items()) {
    if (!id.is_number_integer()) return Bad(path, absl::StrCat("the id of token '", token, "' is not a number"));
    RETURN_IF_ERROR(PutToken(path, id.get<int64_t>(), token, limit, spec));
  }
  if (!model.contains("merges") || !model["merges"].is_array()) return Bad(path, "model.merges is missing");
  for (const Tree& merge : model["merges"]) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string pair = merge.is_string() ? merge.get<std::string>() : "";
    const size_t space = pair.find(' ', 1);
    if (space == std::string::npos) return Bad(path, absl::StrCat("merge ", spec.merges.size(), " is not a pair"));
    spec.merges.emplace_back(pair.substr(0, space), pair.substr(space + 1));
  }
  const Tree ignore = model.value("ignore_merges", Tree(false));
  spec.ignore_merges = ignore.is_boolean() && ignore.get<bool>();
  return absl::OkStatus();
}

absl::Status ReadAdded(const std::string& path, const Tree& added, size_t limit, TokenizerSpec& spec) {
  for (const Tree& entry : added) {
    if (!entry.is_object() || !entry.value("content", Tree()).is_string() ||
        !entry.value("id", Tree()).is_number_integer()) {
      return Bad(path, absl::StrCat("added token ", spec.added.size(), " has no content or id"));
    }
    AddedToken token;
    token.id = static_cast<int32_t>(std::min<int64_t>(entry["id"].get<int64_t>(), INT32_MAX));
    token.content = entry["content"].get<std::string>();
    token.special = entry.value("special", false);
    token.normalized = entry.value("normalized", false);
    token.lstrip = entry.value("lstrip", false);
    token.rstrip = entry.value("rstrip", false);
    token.single_word = entry.value("single_word", false);
    RETURN_IF_ERROR(PutToken(path, token.id, token.content, limit, spec));
    spec.added.push_back(std::move(token));
  }
  return absl::OkStatus();
}

absl::Status ReadNormalizer(const std::string& path, const Tree& normalizer, TokenizerSpec& spec) {
  if (normalizer.is_null()) return absl::OkStatus();
  const std::string type = TypeOf(normalizer);
  if (type == "NFC") {
    spec.nfc = true;
    return absl::OkStatus();
  }
  if (type == "Sequence") {
    for (const Tree& part : normalizer.value("normalizers", Tree::array()))
      RETURN_IF_ERROR(ReadNormalizer(path, part, spec));
    return absl::OkStatus();
  }
  return Unsupported(path, absl::StrCat("a normalizer of type '", type, "'"));
}

absl::Status ReadPreTokenizer(const std::string& path, const Tree& part, TokenizerSpec& spec) {
  const std::string type = TypeOf(part);
  if (type == "Sequence") {
    for (const Tree& inner : part.value("pretokenizers", Tree::array()))
      RETURN_IF_ERROR(ReadPreTokenizer(path, inner, spec));
    return absl::OkStatus();
  }
  if (type == "ByteLevel") {
    spec.add_prefix_space = part.value("add_prefix_space", false);
    if (part.value("use_regex", true)) spec.split_patterns.push_back(kGpt2Pattern);
    return absl::OkStatus();
  }
  if (type == "Digits") {
    spec.split_patterns.push_back(part.value("individual_digits", false) ? kDigitPattern : R"(\p{N}+)");
    return absl::OkStatus();
  }
  if (type == "Split" && part.value("behavior", "") == "Isolated" && !part.value("invert", false)) {
    const Tree pattern = part.value("pattern", Tree::object());
    if (pattern.contains("Regex") && pattern["Regex"].is_string()) {
      spec.split_patterns.push_back(pattern["Regex"].get<std::string>());
      return absl::OkStatus();
    }
  }
  return Unsupported(path, absl::StrCat("a pre-tokenizer of type '", type, "' as it stands there"));
}

absl::Status ReadPostProcessor(const std::string& path, const Tree& part, TokenizerSpec& spec) {
  if (part.is_null() || TypeOf(part) == "ByteLevel") return absl::OkStatus();
  if (TypeOf(part) == "Sequence") {
    for (const Tree& inner : part.value("processors", Tree::array()))
      RETURN_IF_ERROR(ReadPostProcessor(path, inner, spec));
    return absl::OkStatus();
  }
  if (TypeOf(part) != "TemplateProcessing")
    return Unsupported(path, absl::StrCat("a post-processor of type '", TypeOf(part), "'"));
  bool after_text = false;
  for (const Tree& item : part.value("single", Tree::array())) {
    if (item.contains("Sequence")) {
      after_text = true;
      continue;
    }
    const std::string name = item.value("SpecialToken", Tree::object()).value("id", "");
    const Tree ids =
        part.value("special_tokens", Tree::object()).value(name, Tree::object()).value("ids", Tree::array());
    for (const Tree& id : ids) (after_text ? spec.suffix_ids : spec.prefix_ids).push_back(id.get<int32_t>());
  }
  return absl::OkStatus();
}

absl::Status Fill(const std::string& path, const Tree& json, TokenizerSpec& spec) {
  if (!json.is_object() || !json.contains("model")) return Bad(path, "this is no tokenizer.json: it has no model");
  const Tree added = json.value("added_tokens", Tree::array());
  const Tree& model = json["model"];
  const size_t entries = (model.is_object() && model.contains("vocab") ? model["vocab"].size() : 0) + added.size();
  const size_t limit = 2 * entries + 4096;
  RETURN_IF_ERROR(ReadModel(path, model, limit, spec));
  RETURN_IF_ERROR(ReadAdded(path, added, limit, spec));
  RETURN_IF_ERROR(ReadNormalizer(path, json.value("normalizer", Tree()), spec));
  if (json.contains("pre_tokenizer") && !json["pre_tokenizer"].is_null()) {
    RETURN_IF_ERROR(ReadPreTokenizer(path, json["pre_tokenizer"], spec));
  }
  return ReadPostProcessor(path, json.value("post_processor", Tree()), spec);
}

// A special token of tokenizer_config.json: a text, or an object with its content.
std::string TokenText(const Tree& config, const char* key) {
  const Tree value = config.value(key, Tree());
  if (value.is_string()) return value.get<std::string>();
  return value.is_object() ? value.value("content", std::string()) : std::string();
}

std::optional<int32_t> IdOf(const TokenizerSpec& spec, const std::string& token) {
  if (token.empty()) return std::nullopt;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id] == token) return static_cast<int32_t>(id);
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<TokenizerSpec> ReadTokenizerJson(const std::string& path) {
  TokenizerSpec spec;
  spec.source = path;
  ASSIGN_OR_RETURN(spec.tokenizer_json, ReadFile(path));
  absl::StatusOr<Tree> json = ParseTree(spec.tokenizer_json);
  if (!json.ok()) return AddContext(json.status(), path);
  try {
    RETURN_IF_ERROR(Fill(path, *json, spec));
  } catch (const nlohmann::json::exception& error) {
    return Bad(path, absl::StrCat("an entry has an unexpected type: ", error.what()));
  }
  return spec;
}

absl::Status ReadTokenizerConfig(const std::string& folder, TokenizerSpec& spec) {
  namespace fs = std::filesystem;
  const std::string path = folder + "/tokenizer_config.json";
  if (fs::exists(path)) {
    ASSIGN_OR_RETURN(spec.tokenizer_config_json, ReadFile(path));
    absl::StatusOr<Tree> config = ParseTree(spec.tokenizer_config_json);
    if (!config.ok()) return AddContext(config.status(), path);
    if (!config->is_object()) return Bad(path, "it must hold one object");
    try {
      spec.bos_id = IdOf(spec, TokenText(*config, "bos_token"));
      spec.eos_id = IdOf(spec, TokenText(*config, "eos_token"));
      const Tree chat = config->value("chat_template", Tree());
      if (chat.is_string()) spec.chat_template = chat.get<std::string>();
      if (chat.is_array()) {
        for (const Tree& entry : chat) {
          if (entry.value("name", "") == "default") spec.chat_template = entry.value("template", "");
        }
      }
    } catch (const nlohmann::json::exception& error) {
      return Bad(path, absl::StrCat("an entry has an unexpected type: ", error.what()));
    }
  }
  if (fs::exists(folder + "/chat_template.jinja")) {
    ASSIGN_OR_RETURN(spec.chat_template, ReadFile(folder + "/chat_template.jinja"));
  }
  return absl::OkStatus();
}

std::string BuildTokenizerJson(const TokenizerSpec& spec) {
  Tree vocab = Tree::object(), merges = Tree::array(), added = Tree::array(), splits = Tree::array();
  for (size_t id = 0; id < spec.tokens.size(); ++id) vocab[spec.tokens[id]] = id;
  for (const auto& [left, right] : spec.merges) merges.push_back(Tree::array({left, right}));
  for (const AddedToken& token : spec.added) {
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  for (const std::string& pattern : spec.split_patterns) {
    splits.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  splits.push_back({{"type", "ByteLevel"},
                    {"add_prefix_space", spec.add_prefix_space},
                    {"trim_offsets", true},
                    {"use_regex", false}});
  const Tree json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", spec.nfc ? Tree{{"type", "NFC"}} : Tree()},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", splits}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", spec.ignore_merges},
        {"vocab", vocab},
        {"merges", merges}}}};
  return json.dump(-1, ' ', false, Tree::error_handler_t::replace);
}

std::string BuildTokenizerConfigJson(const TokenizerSpec& spec) {
  const auto token = [&](const std::optional<int32_t>& id) { return id.has_value() ? Tree(spec.tokens[*id]) : Tree(); };
  Tree config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"bos_token", token(spec.bos_id)},
                 {"eos_token", token(spec.eos_id)},
                 {"clean_up_tokenization_spaces", false}};
  if (!spec.chat_template.empty()) config["chat_template"] = spec.chat_template;
  return config.dump(2, ' ', false, Tree::error_handler_t::replace);
}

}  // namespace lockstep::text
