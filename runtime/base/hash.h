// Content hashes: XXH3-64 (https://xxhash.com). Not cryptographic: they find accidents, not attacks.
#ifndef LOCKSTEP_RUNTIME_BASE_HASH_H_
#define LOCKSTEP_RUNTIME_BASE_HASH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

uint64_t Hash64(const void* data, size_t num_bytes);

// 16 lower-case hex digits.
std::string HashToHex(uint64_t hash);

// Hash of a sequence of byte runs, as if they were one.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void Update(const void* data, size_t num_bytes);
  uint64_t Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_BASE_HASH_H_
