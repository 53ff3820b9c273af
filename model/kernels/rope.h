// Rotary position embedding (Su et al., 2021): pairs of a head's elements turn by an angle that grows with the
// position.
//
//   (a, b) -> (a cos t - b sin t, b cos t + a sin t)      t = position * frequency(pair)
//
// Which elements make a pair is a parameter: halves (i, i + head_dim / 2), as in Hugging Face's files, or neighbours
// (2 i, 2 i + 1), as in GGUF files of the llama family. Sines and cosines are computed in double and rounded once.
//
// Thread contract: a table is immutable after construction; the functions are single-threaded and act on one row.
#ifndef LOCKSTEP_MODEL_KERNELS_ROPE_H_
#define LOCKSTEP_MODEL_KERNELS_ROPE_H_

#include <cstdint>

#include "runtime/device/tensor.h"

namespace lockstep::model {

enum class RopePairing : uint8_t { kHalves, kNeighbours };

struct RopeParameters {
  int64_t head_dim = 0;  // even
  int64_t max_positions = 0;
  double theta = 10000;  // frequency(i) = theta^(-2 i / head_dim), then scaled
  RopePairing pairing = RopePairing::kHalves;
  // kLinear divides every frequency by `factor`. kLlama3 leaves wavelengths below original_max_positions /
  // high_freq_factor, divides those above original_max_positions / low_freq_factor, and blends between (Llama 3.1).
  enum class Scaling : uint8_t { kNone, kLinear, kLlama3 } scaling = Scaling::kNone;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_positions = 8192;
};

// Frequency of one pair in radians per position, scaling included.
double RopeFrequency(const RopeParameters& parameters, int64_t pair);

class RopeTable {
 public:
  explicit RopeTable(const RopeParameters& parameters);
  int64_t head_dim() const { return head_dim_; }
  int64_t max_positions() const { return max_positions_; }
  RopePairing pairing() const { return pairing_; }
  // [head_dim / 2] f32 each
  const float* cos(int64_t position) const { return table_.as<float>() + position * head_dim_; }
  const float* sin(int64_t position) const { return cos(position) + head_dim_ / 2; }

 private:
  int64_t head_dim_ = 0;
  int64_t max_positions_ = 0;
  RopePairing pairing_ = RopePairing::kHalves;
  Buffer table_;  // [max_positions][cos | sin] f32
};

// Turns the heads of a row in place: heads // [num_heads, head_dim] f32. CHECKs that position < table.max_positions().
void RopeForward(const RopeTable& table, int64_t position, int64_t num_heads, float* heads);

// Gradient: turns by the opposite angle.
void RopeBackward(const RopeTable& table, int64_t position, int64_t num_heads, float* heads);

}  // namespace lockstep::model

#endif  // LOCKSTEP_MODEL_KERNELS_ROPE_H_
