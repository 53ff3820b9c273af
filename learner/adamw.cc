#include "learner/adamw.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace lockstep::learner {

absl::Status AdamWOptions::Validate() const {
  const auto bad = [](const char* field, double value, const char* valid) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ": it must be ", valid));
  };
  if (!(beta1 >= 0 && beta1 < 1)) return bad("beta1", beta1, "at least 0 and below 1");
  if (!(beta2 >= 0 && beta2 < 1)) return bad("beta2", beta2, "at least 0 and below 1");
  if (!(eps > 0)) return bad("eps", eps, "positive");
  if (!(weight_decay >= 0)) return bad("weight_decay", weight_decay, "0 or positive");
  return absl::OkStatus();
}

void AdamWUpdate(const AdamWOptions& options, double lr, int64_t step, double gradient_scale, bool decay, int64_t count,
                 const float* gradient, float* parameter, float* first_moment, float* second_moment) {
  const float b1 = static_cast<float>(options.beta1), c1 = static_cast<float>(1 - options.beta1);
  const float b2 = static_cast<float>(options.beta2), c2 = static_cast<float>(1 - options.beta2);
  const double t = static_cast<double>(step);
  const float step_size = static_cast<float>(lr / (1 - std::pow(options.beta1, t)));
  const float correction = static_cast<float>(1 / (1 - std::pow(options.beta2, t)));
  const float eps = static_cast<float>(options.eps);
  const float keep = static_cast<float>(1 - lr * (decay ? options.weight_decay : 0.0));
  const float scale = static_cast<float>(gradient_scale);
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale;
    const float m = b1 * first_moment[i] + c1 * g;
    const float v = b2 * second_moment[i] + c2 * (g * g);
    first_moment[i] = m;
    second_moment[i] = v;
    parameter[i] = parameter[i] * keep - step_size * m / (std::sqrt(v * correction) + eps);
  }
}

}  // namespace lockstep::learner
