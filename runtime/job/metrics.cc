#include "runtime/job/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"

namespace lockstep::job {

Json ToJson(const StepMetrics& metrics) {
  Json line = {{"step", metrics.step}};
  const auto add = [&line](const std::string& name, Json value) {
    CHECK(!line.contains(name));
    line[name] = std::move(value);
  };
  for (const auto& [name, value] : metrics.numbers) add(name, std::isfinite(value) ? Json(value) : Json());
  for (const auto& [name, text] : metrics.texts) add(name, text);
  return line;
}

}  // namespace lockstep::job
