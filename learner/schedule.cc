#include "learner/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::learner {

double LearningRate(const ScheduleOptions& options, int64_t step) {
  if (step < options.warmup_steps) {
    const int64_t done = step + (options.warm_up == ScheduleOptions::WarmUp::kFromFirst ? 1 : 0);
    return options.base * static_cast<double>(done) / static_cast<double>(options.warmup_steps);
  }
  if (options.kind == ScheduleOptions::Kind::kConstant) return options.base;
  const double span = static_cast<double>(options.total_steps - options.warmup_steps);
  const double progress =
      span <= 0 ? 1.0 : std::clamp(static_cast<double>(step - options.warmup_steps) / span, 0.0, 1.0);
  const double rest =
      options.kind == ScheduleOptions::Kind::kLinear ? 1 - progress : (1 + std::cos(std::numbers::pi * progress)) / 2;
  return options.min + (options.base - options.min) * rest;
}

}  // namespace lockstep::learner
