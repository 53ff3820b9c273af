// Sums that do not depend on their order: float32 contributions become int64 fixed point and are added as integers,
// which is associative, so any number of ranks and any reduction tree give the same bits.
//
//   value -> round to nearest even(value / quantum), quantum = 2^quantum_log2, at first 2^-50
//
// One rounding per contribution: the error of a sum of n contributions is at most n * quantum / 2. Range: each
// contribution is tested against 2^62 / (contributions of the sum), so no order of additions can overflow; on failure
// the whole sum is made again with a quantum 2^10 coarser. Not finite values are flagged before conversion.
//
// Thread contract: pure functions; callers split ranges.
#ifndef LOCKSTEP_LEARNER_EXACT_SUM_H_
#define LOCKSTEP_LEARNER_EXACT_SUM_H_

#include <cstdint>

namespace lockstep::learner {

inline constexpr int kFirstQuantumLog2 = -50;
inline constexpr int kQuantumStepLog2 = 10;

// What a range of contributions looked like.
struct RangeCheck {
  float max_abs = 0;  // of the finite values
  bool finite = true;
  void Join(const RangeCheck& other) {
    max_abs = max_abs > other.max_abs ? max_abs : other.max_abs;
    finite = finite && other.finite;
  }
};

// sums[i] += fixed point of values[i]. Values that are not finite, or too large for int64, add nothing that means
// anything: the check tells, and the sums must then be thrown away.
RangeCheck AddExact(const float* values, int64_t count, int quantum_log2, int64_t* sums);

// Largest |value| that `num_contributions` contributions to one sum may each have.
double LargestContribution(int quantum_log2, int64_t num_contributions);

// values[i] = float32(sums[i] * quantum), one rounding.
void ExactToFloat(const int64_t* sums, int64_t count, int quantum_log2, float* values);

// Sum of squares in blocks of 4,096 values, each block one chain in double; blocks add up in order. `values` starts at
// a multiple of the block size of the flat array, so that pieces of it give the blocks of the whole.
inline constexpr int64_t kNormBlock = 4096;
double BlockSumOfSquares(const float* values, int64_t count);  // count <= kNormBlock

}  // namespace lockstep::learner

#endif  // LOCKSTEP_LEARNER_EXACT_SUM_H_
