// What an evaluation found. Pure arithmetic, apart from sampling.
//
//   avg      mean reward over all valid samples (avg@n: n samples of each prompt)
//   pass@k   probability that at least one of k samples passes, by the unbiased estimator 1 - C(n - c, k) / C(n, k)
//            with n valid samples of a prompt of which c pass (Chen et al., 2021: Evaluating Large Language Models
//            Trained on Code), averaged over the prompts that have k valid samples
//
// A sample passes if its reward is 1 or more. An invalid sample (its reward could not be had) is in no average; it is
// counted, with its reason.
#ifndef LOCKSTEP_RUNTIME_JOB_EVAL_REPORT_H_
#define LOCKSTEP_RUNTIME_JOB_EVAL_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/job/metrics.h"

namespace lockstep::job {

// CHECKs 1 <= k <= n and 0 <= c <= n.
double PassAtK(int64_t n, int64_t c, int64_t k);

struct EvalSample {
  double reward = 0;
  std::string error;  // not empty: invalid
  int64_t num_tokens = 0;
  bool stopped = false;  // by itself, not at its limit
};

struct EvalReport {
  int32_t n = 0;
  int64_t num_prompts = 0;
  int64_t num_samples = 0;
  int64_t num_invalid = 0;
  std::map<std::string, int64_t> invalid_reasons;  // how often each
  double average = 0;                              // NaN without a valid sample
  std::vector<double> pass;                        // [n]: pass[k - 1] is pass@k; NaN if no prompt has k valid samples
  double mean_tokens = 0;                          // of all samples
  double stopped = 0;                              // share of all samples
};

// `samples`: [prompts * n], the samples of a prompt side by side. CHECKs that there are any.
EvalReport MakeEvalReport(const std::vector<EvalSample>& samples, int32_t n);

// {"n", "num_prompts", "num_samples", "avg", "pass@1", ..., "pass@n", "num_invalid", "invalid_reasons", "mean_tokens",
// "stopped"}. NaN is null.
Json ToJson(const EvalReport& report);

// "avg@4 0.312, pass@1 0.312, pass@2 0.500, pass@4 0.750 on 64 prompts, 12.3 tokens on average". pass@k for powers of
// two and n. Invalid samples follow, with the reason that was given most.
std::string ToText(const EvalReport& report);

// eval/avg, eval/pass@1 ..., eval/invalid, eval/mean_tokens
void AddMetrics(const EvalReport& report, StepMetrics& metrics);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_EVAL_REPORT_H_
