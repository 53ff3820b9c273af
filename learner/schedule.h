// Learning rate by the number of the optimizer step, in double. A pure function: a resumed run goes on with the same
// rates.
#ifndef LOCKSTEP_LEARNER_SCHEDULE_H_
#define LOCKSTEP_LEARNER_SCHEDULE_H_

#include <cstdint>

namespace lockstep::learner {

struct ScheduleOptions {
  enum class Kind : uint8_t { kConstant, kLinear, kCosine } kind = Kind::kConstant;
  // The first update of a warm-up: moves already (base * 1 / warmup), or has rate 0.
  enum class WarmUp : uint8_t { kFromFirst, kFromZero } warm_up = WarmUp::kFromFirst;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double base = 0;
  double min = 0;  // reached at total_steps, and stays
};

// step counts from 0.
double LearningRate(const ScheduleOptions& options, int64_t step);

}  // namespace lockstep::learner

#endif  // LOCKSTEP_LEARNER_SCHEDULE_H_
