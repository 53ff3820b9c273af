// Vocabularies in GGUF metadata (tokenizer.ggml.*).
#include <map>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/formats/gguf.h"
#include "text/tokenizer_impl.h"

namespace lockstep::text {
namespace {

// Token types of the format.
constexpr int64_t kControl = 3;
constexpr int64_t kUserDefined = 4;

const char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// tokenizer.ggml.pre names a splitting rule without giving it.
absl::Status ChooseSplits(const std::string& rule, TokenizerSpec& spec) {
  static const auto* rules = new std::map<std::string, std::vector<std::string>>{
      {"smollm", {kDigitPattern, kGpt2Pattern}}, {"gpt-2", {kGpt2Pattern}},    {"qwen2", {kQwen2Pattern}},
      {"llama-bpe", {kLlama3Pattern}},           {"llama3", {kLlama3Pattern}},
  };
  const auto it = rules->find(rule);
  if (it == rules->end()) {
    return absl::UnimplementedError(
        absl::StrCat(spec.source, ": the splitting rule '", rule, "' (tokenizer.ggml.pre) is not known"));
  }
  spec.split_patterns = it->second;
  spec.nfc = rule == "qwen2";
  return absl::OkStatus();
}

std::optional<int32_t> OptionalId(const formats::GgufFile& file, const std::string& key, size_t vocab) {
  const absl::StatusOr<int64_t> id = file.GetInt(key);
  if (!id.ok() || *id < 0 || *id >= static_cast<int64_t>(vocab)) return std::nullopt;
  return static_cast<int32_t>(*id);
}

}  // namespace

absl::StatusOr<TokenizerSpec> ReadGgufTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const formats::GgufFile file, formats::GgufFile::Open(path));
  TokenizerSpec spec;
  spec.source = path;
  ASSIGN_OR_RETURN(const std::string model, file.GetString("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return absl::UnimplementedError(
        absl::StrCat(path, ": a vocabulary of kind '", model, "' is not supported yet (byte-level BPE is)"));
  }
  ASSIGN_OR_RETURN(spec.tokens, file.GetStringArray("tokenizer.ggml.tokens"));
  ASSIGN_OR_RETURN(const std::vector<std::string> merges, file.GetStringArray("tokenizer.ggml.merges"));
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos)
      return absl::InvalidArgumentError(absl::StrCat(path, ": merge ", spec.merges.size(), " is not a pair"));
    spec.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  if (file.Has("tokenizer.ggml.token_type")) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> types, file.GetIntArray("tokenizer.ggml.token_type"));
    for (size_t id = 0; id < std::min(types.size(), spec.tokens.size()); ++id) {
      if (types[id] != kControl && types[id] != kUserDefined) continue;
      AddedToken token;
      token.id = static_cast<int32_t>(id);
      token.content = spec.tokens[id];
      token.special = types[id] == kControl;
      spec.added.push_back(std::move(token));
    }
  }
  const absl::StatusOr<std::string> rule = file.GetString("tokenizer.ggml.pre");
  RETURN_IF_ERROR(ChooseSplits(rule.ok() ? *rule : "gpt-2", spec));
  spec.bos_id = OptionalId(file, "tokenizer.ggml.bos_token_id", spec.tokens.size());
  spec.eos_id = OptionalId(file, "tokenizer.ggml.eos_token_id", spec.tokens.size());
  const absl::StatusOr<bool> add_bos = file.GetBool("tokenizer.ggml.add_bos_token");
  if (add_bos.ok() && *add_bos && spec.bos_id.has_value()) spec.prefix_ids = {*spec.bos_id};
  const absl::StatusOr<std::string> chat = file.GetString("tokenizer.chat_template");
  if (chat.ok()) spec.chat_template = *chat;
  return spec;
}

}  // namespace lockstep::text
