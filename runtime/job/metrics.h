// What one step measured: named numbers in the order they are written, and texts (hashes) beside them. A name is
// "group/what", with its unit last where it has one; TensorBoard groups by the part before '/'.
//
//   reward/mean, reward/std, reward/invalid       completion/mean_tokens          policy/entropy, policy/approx_kl, ...
//   optimizer/grad_norm, optimizer/lr             check/tokens (checked to the bit), check/differing
//   seconds/generate, seconds/train, ...          speed/generated_tokens_per_s    eval/avg, eval/pass@1, ...
//   weight_hash                                                                   (a text)
#ifndef LOCKSTEP_RUNTIME_JOB_METRICS_H_
#define LOCKSTEP_RUNTIME_JOB_METRICS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/json.h"

namespace lockstep::job {

struct StepMetrics {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::pair<std::string, std::string>> texts;

  void Add(const std::string& name, double value) { numbers.emplace_back(name, value); }
  void AddText(const std::string& name, const std::string& text) { texts.emplace_back(name, text); }
};

// {"step": 3, numbers..., texts...}. Numbers that are not finite become null, which JSON has, so that a reader sees
// that something was measured and went wrong. CHECKs that no name is used twice.
Json ToJson(const StepMetrics& metrics);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_METRICS_H_
