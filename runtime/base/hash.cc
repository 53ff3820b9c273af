#include "runtime/base/hash.h"

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "runtime/base/check.h"

namespace lockstep {

struct Hasher::State {
  XXH3_state_t* xxh = nullptr;
};

uint64_t Hash64(const void* data, size_t num_bytes) { return XXH3_64bits(data, num_bytes); }

std::string HashToHex(uint64_t hash) {
  static const char kDigits[] = "0123456789abcdef";
  std::string hex(16, '0');
  for (int i = 15; i >= 0; --i, hash >>= 4) hex[i] = kDigits[hash & 15];
  return hex;
}

Hasher::Hasher() : state_(std::make_unique<State>()) {
  state_->xxh = XXH3_createState();
  CHECK(state_->xxh != nullptr);
  XXH3_64bits_reset(state_->xxh);
}

Hasher::~Hasher() { XXH3_freeState(state_->xxh); }

void Hasher::Update(const void* data, size_t num_bytes) { XXH3_64bits_update(state_->xxh, data, num_bytes); }

uint64_t Hasher::Digest() const { return XXH3_64bits_digest(state_->xxh); }

}  // namespace lockstep
