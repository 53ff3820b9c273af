#include "runtime/job/eval_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/check.h"

namespace lockstep::job {
namespace {

constexpr double kPassingReward = 1.0;

Json NumberOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(); }

double Mean(double sum, int64_t count) { return count > 0 ? sum / static_cast<double>(count) : std::nan(""); }

std::string PassName(size_t k) { return absl::StrCat("pass@", k); }

}  // namespace

double PassAtK(int64_t n, int64_t c, int64_t k) {
  CHECK(1 <= k && k <= n);
  CHECK(0 <= c && c <= n);
  if (n - c < k) return 1;  // any k samples hold one that passes
  // C(n - c, k) / C(n, k) as a product: the binomials themselves overflow.
  double none_passes = 1;
  for (int64_t i = n - c + 1; i <= n; ++i) none_passes *= static_cast<double>(i - k) / static_cast<double>(i);
  return 1 - none_passes;
}

EvalReport MakeEvalReport(const std::vector<EvalSample>& samples, int32_t n) {
  CHECK_GE(n, 1);
  CHECK(!samples.empty() && samples.size() % static_cast<size_t>(n) == 0);
  EvalReport report;
  report.n = n;
  report.num_samples = static_cast<int64_t>(samples.size());
  report.num_prompts = report.num_samples / n;
  double rewards = 0, tokens = 0, stopped = 0;
  std::vector<double> pass_sums(n, 0.0);
  std::vector<int64_t> pass_prompts(n, 0);
  for (size_t begin = 0; begin < samples.size(); begin += static_cast<size_t>(n)) {
    int64_t valid = 0, passing = 0;
    for (size_t i = begin; i < begin + static_cast<size_t>(n); ++i) {
      tokens += static_cast<double>(samples[i].num_tokens);
      stopped += samples[i].stopped;
      if (!samples[i].error.empty()) {
        ++report.num_invalid;
        ++report.invalid_reasons[samples[i].error];
        continue;
      }
      ++valid;
      passing += samples[i].reward >= kPassingReward;
      rewards += samples[i].reward;
    }
    for (int64_t k = 1; k <= valid; ++k) {
      pass_sums[k - 1] += PassAtK(valid, passing, k);
      ++pass_prompts[k - 1];
    }
  }
  report.average = Mean(rewards, report.num_samples - report.num_invalid);
  for (int32_t k = 0; k < n; ++k) report.pass.push_back(Mean(pass_sums[k], pass_prompts[k]));
  report.mean_tokens = Mean(tokens, report.num_samples);
  report.stopped = Mean(stopped, report.num_samples);
  return report;
}

Json ToJson(const EvalReport& report) {
  Json object = {{"n", report.n},
                 {"num_prompts", report.num_prompts},
                 {"num_samples", report.num_samples},
                 {"avg", NumberOrNull(report.average)}};
  for (size_t k = 1; k <= report.pass.size(); ++k) object[PassName(k)] = NumberOrNull(report.pass[k - 1]);
  object["num_invalid"] = report.num_invalid;
  object["invalid_reasons"] = Json(report.invalid_reasons);
  object["mean_tokens"] = report.mean_tokens;
  object["stopped"] = report.stopped;
  return object;
}

std::string ToText(const EvalReport& report) {
  std::string text = absl::StrFormat("avg@%d %.3f", report.n, report.average);
  for (size_t k = 1; k <= report.pass.size(); ++k) {
    const bool power_of_two = (k & (k - 1)) == 0;
    if (power_of_two || k == report.pass.size()) absl::StrAppendFormat(&text, ", pass@%d %.3f", k, report.pass[k - 1]);
  }
  absl::StrAppendFormat(&text, " on %d prompts, %.1f tokens on average", report.num_prompts, report.mean_tokens);
  if (report.num_invalid == 0) return text;
  const auto most = std::max_element(report.invalid_reasons.begin(), report.invalid_reasons.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  absl::StrAppendFormat(&text, "; left out: %d of %d samples are invalid (%d: %s)", report.num_invalid,
                        report.num_samples, most->second, most->first);
  return text;
}

void AddMetrics(const EvalReport& report, StepMetrics& metrics) {
  metrics.Add("eval/avg", report.average);
  for (size_t k = 1; k <= report.pass.size(); ++k) metrics.Add("eval/" + PassName(k), report.pass[k - 1]);
  metrics.Add("eval/invalid", static_cast<double>(report.num_invalid));
  metrics.Add("eval/mean_tokens", report.mean_tokens);
}

}  // namespace lockstep::job
