#include "text/bpe.h"

#include <array>
#include <queue>

#include "absl/strings/str_cat.h"

namespace lockstep::text {
namespace {

// GPT-2's table: printable Latin-1 bytes stand for themselves, the others for the code points from 256 on, in order.
struct Alphabet {
  std::array<uint32_t, 256> code_points;
  std::unordered_map<uint32_t, uint8_t> bytes;
  Alphabet() {
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      code_points[b] = printable ? b : next++;
      bytes[code_points[b]] = static_cast<uint8_t>(b);
    }
  }
};
const Alphabet& TheAlphabet() {
  static const auto* alphabet = new Alphabet;
  return *alphabet;
}

void AppendCodePoint(uint32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else {  // the alphabet ends below 0x800
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

}  // namespace

std::string ByteToCharacter(uint8_t byte) {
  std::string out;
  AppendCodePoint(TheAlphabet().code_points[byte], out);
  return out;
}

std::string BytesToAlphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) AppendCodePoint(TheAlphabet().code_points[static_cast<uint8_t>(c)], out);
  return out;
}

std::string AlphabetToBytes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    uint32_t code_point = lead;
    size_t length = 1;
    if ((lead & 0xE0) == 0xC0 && i + 1 < text.size()) {
      code_point = ((lead & 0x1Fu) << 6) | (static_cast<uint8_t>(text[i + 1]) & 0x3Fu);
      length = 2;
    }
    const auto it = lead < 0x80 || length == 2 ? TheAlphabet().bytes.find(code_point) : TheAlphabet().bytes.end();
    if (it != TheAlphabet().bytes.end()) {
      out += static_cast<char>(it->second);
    } else {
      out.append(text, i, length);
    }
    i += length;
  }
  return out;
}

absl::StatusOr<Bpe> Bpe::Make(const std::vector<std::string>& tokens,
                              const std::vector<std::pair<std::string, std::string>>& merges, bool ignore_merges) {
  Bpe bpe;
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id) ids.emplace(tokens[id], static_cast<int32_t>(id));
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character = ByteToCharacter(static_cast<uint8_t>(byte));
    const auto it = ids.find(character);
    // Vocabularies may leave out bytes that UTF-8 never has; such a byte is dropped, as other tokenizers do.
    bpe.byte_ids_[byte] = it == ids.end() ? -1 : it->second;
  }
  bpe.merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto l = ids.find(left), r = ids.find(right);
    const std::string whole = left + right;
    const auto w = ids.find(whole);
    if (l == ids.end() || r == ids.end() || w == ids.end()) {
      return absl::InvalidArgumentError(absl::StrCat("merge ", rank, " ('", left, "' '", right,
                                                     "'): its parts and its whole must be in the vocabulary"));
    }
    bpe.merges_.emplace(Key(l->second, r->second), Merge{static_cast<int32_t>(rank), w->second});
  }
  if (ignore_merges) {
    for (size_t id = 0; id < tokens.size(); ++id)
      bpe.whole_pieces_.emplace(AlphabetToBytes(tokens[id]), static_cast<int32_t>(id));
  }
  return bpe;
}

void Bpe::Encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (!whole_pieces_.empty()) {
    const auto it = whole_pieces_.find(std::string(piece));
    if (it != whole_pieces_.end()) {
      ids.push_back(it->second);
      return;
    }
  }
  struct Symbol {
    int32_t id, previous, next;  // id -1: merged into its left neighbour
  };
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0)
      symbols.push_back({id, static_cast<int32_t>(symbols.size()) - 1, static_cast<int32_t>(symbols.size()) + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  struct Candidate {
    int32_t rank, at, left_id, right_id, id;
  };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(later)> queue(later);
  const auto propose = [&](int32_t at) {
    if (at < 0 || symbols[at].next < 0) return;
    const int32_t left = symbols[at].id, right = symbols[symbols[at].next].id;
    const auto it = merges_.find(Key(left, right));
    if (it != merges_.end()) queue.push({it->second.rank, at, left, right, it->second.id});
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) propose(static_cast<int32_t>(i));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    if (left.id != best.left_id || left.next < 0 || symbols[left.next].id != best.right_id)
      continue;  // no longer there
    Symbol& right = symbols[left.next];
    left.id = best.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = best.at;
    propose(left.previous);
    propose(best.at);
  }
  for (int32_t at = 0; at >= 0; at = symbols[at].next) ids.push_back(symbols[at].id);
}

}  // namespace lockstep::text
