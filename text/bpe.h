// Byte-pair merging (Sennrich et al., 2016) over byte-level symbols (Radford et al., 2019): every byte is a printable
// character of the vocabulary's alphabet, so any text encodes.
//
// Merging takes O(n log n): one piece may be a whole text. Immutable after construction; thread-safe.
#ifndef LOCKSTEP_TEXT_BPE_H_
#define LOCKSTEP_TEXT_BPE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::text {

// The byte-level alphabet: bytes to UTF-8 characters and back.
std::string ByteToCharacter(uint8_t byte);
std::string BytesToAlphabet(std::string_view bytes);
// Characters outside the alphabet are kept as they are (added tokens hold such).
std::string AlphabetToBytes(std::string_view text);

class Bpe {
 public:
  // tokens[id]: its text in the alphabet; merges: pairs of token texts, best first. Errors name the entry: a merge
  // whose parts or whole is not in the vocabulary, a byte without a token.
  static absl::StatusOr<Bpe> Make(const std::vector<std::string>& tokens,
                                  const std::vector<std::pair<std::string, std::string>>& merges, bool ignore_merges);

  // Appends the ids of one piece (raw bytes).
  void Encode(std::string_view piece, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  }

  int32_t byte_ids_[256] = {};
  std::unordered_map<uint64_t, Merge> merges_;             // by Key(left, right)
  std::unordered_map<std::string, int32_t> whole_pieces_;  // raw bytes; only where merges may be ignored
};

}  // namespace lockstep::text

#endif  // LOCKSTEP_TEXT_BPE_H_
