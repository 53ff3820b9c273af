#include "runtime/base/philox.h"

#include "runtime/base/check.h"

namespace lockstep {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::array<uint32_t, 4> RandomBits(const RandomKey& key, const DrawId& id) {
  CHECK(id.ordinal >= 0 && id.ordinal < (int64_t{1} << 48));
  CHECK(id.sample >= 0 && id.sample < (1 << 24));
  CHECK(id.turn >= 0 && id.turn < (1 << 16));
  CHECK(id.draw >= 0 && id.draw < (int64_t{1} << 32));
  const auto purpose = static_cast<uint32_t>(key.purpose);
  CHECK_LT(purpose, 256u);
  // 48 + 16 + 24 + 8 + 32 = 128 bits: every identity has a counter of its own.
  const std::array<uint32_t, 4> counter = {
      static_cast<uint32_t>(id.ordinal),
      static_cast<uint32_t>(id.ordinal >> 32) | (static_cast<uint32_t>(id.turn) << 16),
      static_cast<uint32_t>(id.sample) | (purpose << 24), static_cast<uint32_t>(id.draw)};
  return Philox4x32(counter, {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

double UniformDouble(const RandomKey& key, const DrawId& id) {
  const std::array<uint32_t, 4> bits = RandomBits(key, id);
  const uint64_t wide = (static_cast<uint64_t>(bits[0]) << 32) | bits[1];
  return static_cast<double>(wide >> 11) * 0x1.0p-53;
}

uint32_t UniformBelow(const RandomKey& key, const DrawId& id, uint64_t bound) {
  CHECK(bound >= 1 && bound <= (uint64_t{1} << 32));
  const std::array<uint32_t, 4> bits = RandomBits(key, id);
  const uint64_t wide = (static_cast<uint64_t>(bits[0]) << 32) | bits[1];
  return static_cast<uint32_t>((static_cast<unsigned __int128>(wide) * bound) >> 64);
}

}  // namespace lockstep
