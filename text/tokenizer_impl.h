// The parts of a tokenizer, and the readers that fill them. Internal to text.
#ifndef LOCKSTEP_TEXT_TOKENIZER_IMPL_H_
#define LOCKSTEP_TEXT_TOKENIZER_IMPL_H_

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/bpe.h"
#include "text/splitter.h"
#include "text/tokenizer.h"

namespace lockstep::text {

// What a vocabulary file says, before anything is built from it.
struct TokenizerSpec {
  std::string source;  // path, for messages
  std::vector<std::string>
      tokens;  // by id, in the byte-level alphabet; "" where an id is not used; added tokens as they are
  std::vector<std::pair<std::string, std::string>> merges;
  bool ignore_merges = false;
  std::vector<AddedToken> added;
  bool nfc = false;  // Unicode normalisation form C
  std::vector<std::string> split_patterns;
  bool add_prefix_space = false;
  std::vector<int32_t> prefix_ids, suffix_ids;  // what add_special_tokens puts around the text
  std::optional<int32_t> bos_id, eos_id;
  std::string chat_template;
  // Verbatim files to write again; empty for GGUF, whose files are built.
  std::string tokenizer_json, tokenizer_config_json;
};

absl::StatusOr<TokenizerSpec> ReadTokenizerJson(const std::string& path);  // tokenizer.json alone
absl::Status ReadTokenizerConfig(const std::string& folder, TokenizerSpec& spec);
absl::StatusOr<TokenizerSpec> ReadGgufTokenizer(const std::string& path);

// GPT-2's splitting rule, which ByteLevel with use_regex stands for.
extern const char kGpt2Pattern[];
// One digit at a time.
extern const char kDigitPattern[];

// tokenizer.json and tokenizer_config.json for a spec.
std::string BuildTokenizerJson(const TokenizerSpec& spec);
std::string BuildTokenizerConfigJson(const TokenizerSpec& spec);

struct Tokenizer::Impl {
  TokenizerSpec spec;
  Bpe bpe;
  std::vector<Splitter> splitters;
  std::unordered_map<std::string, int32_t> ids;
  std::vector<const AddedToken*> added_by_id;                                    // [vocab] or nullptr
  std::unordered_map<char, std::vector<const AddedToken*>> added_by_first_byte;  // longest first
  uint64_t content_hash = 0;
};

}  // namespace lockstep::text

#endif  // LOCKSTEP_TEXT_TOKENIZER_IMPL_H_
