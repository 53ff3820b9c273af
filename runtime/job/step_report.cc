#include "runtime/job/step_report.h"

#include <algorithm>
#include <cmath>

namespace lockstep::job {
namespace {

double LossTokens(const learner::UpdateMetrics& update) {
  return static_cast<double>(std::max<int64_t>(1, update.loss_tokens));
}

}  // namespace

SampleStatistics Summarize(const ScoredBatch& batch) {
  SampleStatistics result;
  result.num_samples = static_cast<int64_t>(batch.results.size());
  int64_t stopped = 0;
  double sum = 0, squares = 0;
  for (size_t i = 0; i < batch.results.size(); ++i) {
    result.num_tokens += static_cast<int64_t>(batch.results[i].run.tokens.size());
    stopped += batch.results[i].run.finish_reason == FinishReason::kStop;
    const rollout::RewardResult& reward = batch.rewards[i];
    if (!reward.error.empty()) {
      if (result.num_invalid++ == 0) result.invalid_reason = reward.error;
      continue;
    }
    sum += reward.reward;
    squares += reward.reward * reward.reward;
  }
  const auto samples = static_cast<double>(std::max<int64_t>(1, result.num_samples));
  const auto valid = static_cast<double>(result.num_samples - result.num_invalid);
  if (valid > 0) {
    result.reward_mean = sum / valid;
    result.reward_std = std::sqrt(std::max(0.0, squares / valid - result.reward_mean * result.reward_mean));
  }
  result.mean_tokens = static_cast<double>(result.num_tokens) / samples;
  result.stopped = static_cast<double>(stopped) / samples;
  return result;
}

double StepReport::entropy() const { return update.entropy_sum / LossTokens(update); }

StepMetrics ToMetrics(const StepReport& report) {
  const learner::UpdateMetrics& update = report.update;
  const double count = LossTokens(update);
  StepMetrics metrics;
  metrics.step = report.step;
  metrics.Add("reward/mean", report.samples.reward_mean);
  metrics.Add("reward/std", report.samples.reward_std);
  metrics.Add("reward/invalid", static_cast<double>(report.samples.num_invalid));
  metrics.Add("completion/mean_tokens", report.samples.mean_tokens);
  metrics.Add("completion/stopped", report.samples.stopped);
  metrics.Add("policy/loss", update.loss.loss);
  metrics.Add("policy/entropy", report.entropy());
  metrics.Add("policy/clip_fraction", update.loss.clipped_tokens / count);
  metrics.Add("policy/approx_kl", update.loss.approx_kl_sum / count);
  metrics.Add("policy/kl_ref", update.loss.kl_ref_sum / count);
  // A skipped optimizer step had no finite norm.
  metrics.Add("optimizer/grad_norm", update.skipped_optimizer_steps > 0 ? std::nan("") : update.grad_norm);
  metrics.Add("optimizer/lr", report.learning_rate);
  metrics.Add("optimizer/skipped", update.skipped_optimizer_steps);
  metrics.Add("check/tokens", static_cast<double>(update.checked_tokens));
  metrics.Add("check/differing", static_cast<double>(update.differing_tokens));
  metrics.Add("seconds/generate", report.generate_seconds);
  metrics.Add("seconds/reward", report.score_seconds);
  metrics.Add("seconds/train", report.train_seconds);
  metrics.Add("seconds/publish", report.publish_seconds);
  metrics.Add("seconds/step", report.step_seconds);
  metrics.Add("speed/generated_tokens_per_s", static_cast<double>(report.samples.num_tokens) / report.generate_seconds);
  metrics.Add("speed/trained_tokens_per_s", static_cast<double>(update.computed_tokens) / report.train_seconds);
  metrics.Add("publish/flip_us", report.flip_us);
  metrics.AddText("weight_hash", report.weight_hash);
  return metrics;
}

}  // namespace lockstep::job
