// Clipping by the global norm (Pascanu, Mikolov and Bengio, 2013).
//
//   norm = sqrt(sum of squares of all gradients);   gradient *= min(1, max_norm / (norm + eps))
//
// The sum of squares is a sum of fixed blocks in fixed order (exact_sum.h), joined over ranks before the root: a
// parameter that several ranks hold counts once. A norm that is not finite clips nothing: the caller skips the step.
#ifndef LOCKSTEP_LEARNER_GRADIENT_CLIP_H_
#define LOCKSTEP_LEARNER_GRADIENT_CLIP_H_

#include "runtime/base/check.h"

namespace lockstep::learner {

// 1, bit for bit, where the norm is within the limit. max_norm 0: no clipping. eps: one widely used library adds 1e-6.
inline double ClipCoefficient(double norm, double max_norm, double eps = 0) {
  CHECK_GE(norm, 0);  // false for NaN
  if (max_norm <= 0 || norm + eps <= max_norm) return 1;
  return max_norm / (norm + eps);
}

}  // namespace lockstep::learner

#endif  // LOCKSTEP_LEARNER_GRADIENT_CLIP_H_
