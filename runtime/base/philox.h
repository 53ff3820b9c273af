// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011). A number is a pure function of its key and counter, so what is sampled does not depend on batch,
// worker or time.
//
//   const RandomKey key{seed, RandomPurpose::kSampling};
//   const double u = UniformDouble(key, {.ordinal = 17, .sample = 3, .turn = 0, .draw = 42});
//
// Thread-safe: pure functions.
#ifndef LOCKSTEP_RUNTIME_BASE_PHILOX_H_
#define LOCKSTEP_RUNTIME_BASE_PHILOX_H_

#include <array>
#include <cstdint>

namespace lockstep {

// One round function application set on a 128-bit counter with a 64-bit key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// What a stream of numbers is for: two purposes never share a number. Values are part of the bits: never renumber.
enum class RandomPurpose : uint32_t { kSampling = 1, kShuffle = 2, kMakeData = 3, kInit = 4, kEval = 5, kTest = 6 };

struct RandomKey {
  uint64_t seed = 0;
  RandomPurpose purpose = RandomPurpose::kSampling;
};

// Identity of one draw. ordinal < 2^48, sample < 2^24, turn < 2^16, draw < 2^32 (CHECKed); together with the key
// injective.
struct DrawId {
  int64_t ordinal = 0;
  int32_t sample = 0;
  int32_t turn = 0;
  int64_t draw = 0;
};

std::array<uint32_t, 4> RandomBits(const RandomKey& key, const DrawId& id);

// Uniform in [0, 1) with 53 random bits.
double UniformDouble(const RandomKey& key, const DrawId& id);

// Uniform in [0, bound), bound in [1, 2^32]; the bias of the multiply-shift is below bound / 2^64.
uint32_t UniformBelow(const RandomKey& key, const DrawId& id, uint64_t bound);

}  // namespace lockstep

#endif  // LOCKSTEP_RUNTIME_BASE_PHILOX_H_
