// AdamW (Loshchilov and Hutter, 2019): Adam with decoupled weight decay.
//
//   p = p (1 - lr wd);  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p = p - lr (m / (1 - b1^step)) / (sqrt(v / (1 - b2^step)) + eps)
//
// Element by element in float32, coefficients formed in double: any split of the arrays gives the same bits.
#ifndef LOCKSTEP_LEARNER_ADAMW_H_
#define LOCKSTEP_LEARNER_ADAMW_H_

#include <cstdint>

#include "absl/status/status.h"

namespace lockstep::learner {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  // Outside the root, after bias correction. Keeps the step finite where gradients vanish.
  double eps = 1e-8;
  // Per unit of learning rate. Matrices only: norm gains and biases are not decayed.
  double weight_decay = 0.0;
  absl::Status Validate() const;
};

// One update of `count` elements. `step` counts from 1 and is the parameter's own. `gradient_scale` multiplies the
// gradient first (the clip coefficient).
void AdamWUpdate(const AdamWOptions& options, double lr, int64_t step, double gradient_scale, bool decay, int64_t count,
                 const float* gradient, float* parameter, float* first_moment, float* second_moment);

}  // namespace lockstep::learner

#endif  // LOCKSTEP_LEARNER_ADAMW_H_
