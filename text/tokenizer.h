// Text to token ids and back.
//
//   ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load("models/qwen"));      // folder, tokenizer.json or .gguf
//   std::vector<int32_t> ids = tokenizer->Encode("Hello", /*add_special_tokens=*/false);
//
// Byte-level BPE with what real files use around it: added tokens cut out of the text first (leftmost, longest),
// Unicode normalisation, pre-tokenizer chains (regular expressions, digits, byte level), template post-processors.
//
// Errors: InvalidArgument naming file and entry; Unimplemented for another kind of model (unigram, word piece, ...).
// Thread contract: immutable after Load.
#ifndef LOCKSTEP_TEXT_TOKENIZER_H_
#define LOCKSTEP_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lockstep::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // left out by Decode(skip_special_tokens)
  bool normalized = false;   // matched in the normalised text
  bool lstrip = false;       // takes white space before it
  bool rstrip = false;       // takes white space after it
  bool single_word = false;  // matches whole words only
};

class Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  ~Tokenizer();

  std::vector<int32_t> Encode(std::string_view text, bool add_special_tokens) const;
  // Ids outside the vocabulary decode to nothing.
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const;
  // Raw bytes of one token: a piece of UTF-8, maybe incomplete.
  std::string TokenBytes(int32_t id) const;

  int64_t vocab_size() const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::string bos_token() const;
  std::string eos_token() const;
  std::optional<int32_t> TokenToId(const std::string& token) const;
  std::string IdToToken(int32_t id) const;  // "" outside the vocabulary
  bool is_special(int32_t id) const;
  // The model's chat template, "" if it has none.
  const std::string& chat_template_source() const;
  // Of the vocabulary: tokens and their ids.
  uint64_t content_hash() const;

  // Writes tokenizer.json and tokenizer_config.json so that transformers loads them with equal ids.
  absl::Status WriteFiles(const std::string& dir) const;

  struct Impl;

 private:
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Decodes token by token; holds incomplete UTF-8 back. One per completion.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(tokenizer), skip_special_(skip_special_tokens) {}
  // Text that became complete with this token.
  std::string Add(int32_t id);
  // What is left at the end; incomplete UTF-8 becomes U+FFFD.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace lockstep::text

#endif  // LOCKSTEP_TEXT_TOKENIZER_H_
