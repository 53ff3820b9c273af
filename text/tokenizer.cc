#include "text/tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/status.h"
#include "text/tokenizer_impl.h"

namespace lockstep::text {
namespace {

bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool IsWordByte(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0; }

// Invalid UTF-8 stays as it is: normalisation speaks of characters.
std::string Nfc(std::string_view text) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) return std::string(text);
  std::string normalised(reinterpret_cast<char*>(result), static_cast<size_t>(size));
  std::free(result);
  return normalised;
}

using Impl = Tokenizer::Impl;

// A stretch of text, or an added token.
struct Segment {
  std::string_view text;
  const AddedToken* token = nullptr;
};

bool WordBoundaries(std::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !IsWordByte(text[begin - 1])) && (end == text.size() || !IsWordByte(text[end]));
}

// Cuts the added tokens of one kind out of a text: leftmost match, longest at one place.
std::vector<Segment> CutAdded(const Impl& impl, std::string_view text, bool normalized) {
  std::vector<Segment> segments;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* match = nullptr;
    if (const auto it = impl.added_by_first_byte.find(text[at]); it != impl.added_by_first_byte.end()) {
      for (const AddedToken* token : it->second) {
        if (token->normalized != normalized || text.substr(at, token->content.size()) != token->content) continue;
        if (token->single_word && !WordBoundaries(text, at, at + token->content.size())) continue;
        match = token;
        break;
      }
    }
    if (match == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + match->content.size();
    while (match->lstrip && begin > done && IsSpace(text[begin - 1])) --begin;
    while (match->rstrip && end < text.size() && IsSpace(text[end])) ++end;
    if (begin > done) segments.push_back({text.substr(done, begin - done), nullptr});
    segments.push_back({text.substr(begin, end - begin), match});
    done = at = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done), nullptr});
  return segments;
}

void EncodePlain(const Impl& impl, std::string_view text, std::vector<int32_t>& ids) {
  std::string prefixed;
  if (impl.spec.add_prefix_space && !text.empty() && !IsSpace(text[0])) {
    prefixed = absl::StrCat(" ", absl::string_view(text.data(), text.size()));
    text = prefixed;
  }
  std::vector<std::string_view> pieces = {text}, finer;
  for (const Splitter& splitter : impl.splitters) {
    finer.clear();
    for (std::string_view piece : pieces) splitter.Split(piece, finer);
    pieces.swap(finer);
  }
  for (std::string_view piece : pieces) impl.bpe.Encode(piece, ids);
}

absl::StatusOr<TokenizerSpec> ReadSpec(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.ends_with(".gguf")) return ReadGgufTokenizer(path);
  if (!fs::is_directory(path)) return ReadTokenizerJson(path);
  ASSIGN_OR_RETURN(TokenizerSpec spec, ReadTokenizerJson((fs::path(path) / "tokenizer.json").string()));
  RETURN_IF_ERROR(ReadTokenizerConfig(path, spec));
  return spec;
}

absl::StatusOr<std::unique_ptr<Impl>> Build(TokenizerSpec spec) {
  auto impl = std::make_unique<Impl>();
  impl->spec = std::move(spec);
  const TokenizerSpec& s = impl->spec;
  ASSIGN_OR_RETURN(impl->bpe, Bpe::Make(s.tokens, s.merges, s.ignore_merges));
  for (const std::string& pattern : s.split_patterns) {
    ASSIGN_OR_RETURN(Splitter splitter, Splitter::Make(pattern));
    impl->splitters.push_back(std::move(splitter));
  }
  impl->added_by_id.resize(s.tokens.size());
  Hasher hasher;
  for (size_t id = 0; id < s.tokens.size(); ++id) {
    if (!s.tokens[id].empty()) impl->ids.emplace(s.tokens[id], static_cast<int32_t>(id));
    hasher.Update(s.tokens[id].c_str(), s.tokens[id].size() + 1);
  }
  impl->content_hash = hasher.Digest();
  for (const AddedToken& token : s.added) {
    if (token.content.empty())
      return absl::InvalidArgumentError(absl::StrCat(s.source, ": added token ", token.id, " is empty"));
    if (token.id < 0 || token.id >= static_cast<int64_t>(s.tokens.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(s.source, ": added token ", token.id, " lies outside the vocabulary"));
    }
    impl->added_by_id[token.id] = &token;
    impl->added_by_first_byte[token.content[0]].push_back(&token);
  }
  for (auto& [first, tokens] : impl->added_by_first_byte) {
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const AddedToken* a, const AddedToken* b) { return a->content.size() > b->content.size(); });
  }
  return impl;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  absl::StatusOr<TokenizerSpec> spec = ReadSpec(path);
  if (!spec.ok()) return AddContext(spec.status(), "reading the tokenizer");
  absl::StatusOr<std::unique_ptr<Impl>> impl = Build(*std::move(spec));
  if (!impl.ok()) return AddContext(impl.status(), "reading the tokenizer " + path);
  return std::unique_ptr<Tokenizer>(new Tokenizer(*std::move(impl)));
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = impl_->spec.prefix_ids;
  for (const Segment& segment : CutAdded(*impl_, text, /*normalized=*/false)) {
    if (segment.token != nullptr) {
      ids.push_back(segment.token->id);
      continue;
    }
    const std::string normalised = impl_->spec.nfc ? Nfc(segment.text) : std::string(segment.text);
    for (const Segment& part : CutAdded(*impl_, normalised, /*normalized=*/true)) {
      if (part.token != nullptr) {
        ids.push_back(part.token->id);
      } else {
        EncodePlain(*impl_, part.text, ids);
      }
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), impl_->spec.suffix_ids.begin(), impl_->spec.suffix_ids.end());
  return ids;
}

std::string Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return "";
  if (const AddedToken* token = impl_->added_by_id[id]) return token->content;
  return AlphabetToBytes(impl_->spec.tokens[id]);
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const {
  StreamDecoder decoder(*this, skip_special_tokens);
  std::string text;
  for (int32_t id : ids) text += decoder.Add(id);
  return text + decoder.Finish();
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(impl_->spec.tokens.size()); }
std::optional<int32_t> Tokenizer::bos_id() const { return impl_->spec.bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->spec.eos_id; }
std::string Tokenizer::bos_token() const { return bos_id().has_value() ? IdToToken(*bos_id()) : ""; }
std::string Tokenizer::eos_token() const { return eos_id().has_value() ? IdToToken(*eos_id()) : ""; }

std::optional<int32_t> Tokenizer::TokenToId(const std::string& token) const {
  const auto it = impl_->ids.find(token);
  if (it == impl_->ids.end()) return std::nullopt;
  return it->second;
}

std::string Tokenizer::IdToToken(int32_t id) const {
  return id < 0 || id >= vocab_size() ? "" : impl_->spec.tokens[id];
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->added_by_id[id] != nullptr && impl_->added_by_id[id]->special;
}

const std::string& Tokenizer::chat_template_source() const { return impl_->spec.chat_template; }
uint64_t Tokenizer::content_hash() const { return impl_->content_hash; }

absl::Status Tokenizer::WriteFiles(const std::string& dir) const {
  const TokenizerSpec& spec = impl_->spec;
  RETURN_IF_ERROR(MakeDirs(dir));
  RETURN_IF_ERROR(WriteFileDurably(dir + "/tokenizer.json",
                                   spec.tokenizer_json.empty() ? BuildTokenizerJson(spec) : spec.tokenizer_json));
  return WriteFileDurably(dir + "/tokenizer_config.json", spec.tokenizer_config_json.empty()
                                                              ? BuildTokenizerConfigJson(spec)
                                                              : spec.tokenizer_config_json);
}

namespace {

// Length of the longest prefix that ends on a character boundary; bytes that can never become a character count as
// complete.
size_t CompletePrefix(const std::string& text) {
  const size_t size = text.size();
  for (size_t back = 1; back <= std::min<size_t>(3, size); ++back) {
    const auto byte = static_cast<uint8_t>(text[size - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t needed = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return needed > back ? size - back : size;
  }
  return size;
}

// Malformed sequences become U+FFFD, one for each maximal part (Unicode's recommended practice).
std::string Repair(const std::string& text) {
  std::string out;
  const auto* data = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    const uint8_t lead = data[i];
    size_t needed = lead < 0x80                     ? 1
                    : (lead >= 0xC2 && lead < 0xE0) ? 2
                    : (lead & 0xF0) == 0xE0         ? 3
                    : (lead >= 0xF0 && lead < 0xF5) ? 4
                                                    : 0;
    if (needed == 0) {
      out += "\xEF\xBF\xBD";
      ++i;
      continue;
    }
    size_t have = 1;
    while (have < needed && i + have < text.size()) {
      const uint8_t next = data[i + have];
      uint8_t low = 0x80, high = 0xBF;
      if (have == 1 && lead == 0xE0) low = 0xA0;
      if (have == 1 && lead == 0xED) high = 0x9F;
      if (have == 1 && lead == 0xF0) low = 0x90;
      if (have == 1 && lead == 0xF4) high = 0x8F;
      if (next < low || next > high) break;
      ++have;
    }
    if (have == needed) {
      out.append(text, i, needed);
    } else {
      out += "\xEF\xBF\xBD";
    }
    i += have;
  }
  return out;
}

}  // namespace

std::string StreamDecoder::Add(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return "";
  pending_ += tokenizer_.TokenBytes(id);
  const size_t complete = CompletePrefix(pending_);
  std::string text = Repair(pending_.substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string StreamDecoder::Finish() {
  std::string text = Repair(pending_);
  pending_.clear();
  return text;
}

}  // namespace lockstep::text
