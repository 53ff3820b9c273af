#include "learner/policy_update.h"

#include <algorithm>
#include <bit>
#include <set>

#include "absl/strings/str_format.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

namespace lockstep::learner {

PolicyUpdate::PolicyUpdate(Learner& learner, const PolicyUpdateOptions& options, const uint8_t* reference)
    : learner_(learner), options_(options), reference_(reference) {
  CHECK(options.loss.kl_coef == 0 || reference != nullptr);
}

absl::Status PolicyUpdate::ComputeAdvantages(std::vector<ScoredGroup>& groups) {
  algos::RewardBatch batch;
  algos::AdvantageOptions options = options_.advantage;
  std::set<std::string> part_names;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const ScoredSample& sample : groups[g].samples) {
      batch.rewards.push_back(sample.reward);
      batch.groups.push_back(static_cast<int32_t>(g));
      batch.valid.push_back(sample.valid);
      batch.token_counts.push_back(sample.tree.num_sampled_tokens());
      for (const auto& [name, value] : sample.parts) part_names.insert(name);
    }
  }
  if (options.estimator == algos::AdvantageEstimator::kGdpo) {
    if (part_names.empty()) {
      return absl::InvalidArgumentError(
          "algorithm.advantage gdpo normalises each named reward on its own, and the reward names none: answer with "
          "\"rewards\": {\"name\": number}, or choose another advantage");
    }
    options.part_weights.clear();
    for (const std::string& name : part_names) {
      const auto weight = options_.part_weights.find(name);
      options.part_weights.push_back(weight == options_.part_weights.end() ? 1.0 : weight->second);
      std::vector<double>& values = batch.parts.emplace_back();
      for (const ScoredGroup& group : groups) {
        for (const ScoredSample& sample : group.samples) {
          const auto part = sample.parts.find(name);
          values.push_back(part == sample.parts.end() ? 0.0 : part->second);
        }
      }
    }
  }
  const std::vector<double> advantages = algos::ComputeAdvantages(batch, options);
  size_t next = 0;
  for (ScoredGroup& group : groups) {
    for (ScoredSample& sample : group.samples) sample.advantage = advantages[next++];
  }
  return absl::OkStatus();
}

void PolicyUpdate::Append(const ScoredGroup& group, absl::Span<const ScoredSample* const> samples,
                          MicroBatch& batch) const {
  std::vector<const TokenTree*> trees;
  for (const ScoredSample* sample : samples) trees.push_back(&sample->tree);
  const int32_t offset = static_cast<int32_t>(batch.sample_names.size());
  const FlatForest forest = Flatten(trees);
  AppendForest(forest, offset, batch.forest);
  if (batch.row_begin.empty()) batch.row_begin.push_back(0);
  for (size_t s = 0; s < samples.size(); ++s) {
    batch.sample_names.push_back(absl::StrFormat("prompt %d sample %d", group.ordinal, samples[s]->sample_id));
    const int64_t rows = std::count_if(forest.loss_rows.begin(), forest.loss_rows.end(),
                                       [&](const LossRow& row) { return row.sample_id == static_cast<int32_t>(s); });
    batch.row_begin.push_back(batch.row_begin.back() + rows);
    batch.advantages.insert(batch.advantages.end(), static_cast<size_t>(rows),
                            static_cast<float>(samples[s]->advantage));
  }
}

std::vector<PolicyUpdate::MicroBatch> PolicyUpdate::Cut(const std::vector<ScoredGroup>& groups, size_t begin,
                                                        size_t end) const {
  // What stays together: a group, whose prompt is computed once, or a single sample of a group that is too large.
  struct Item {
    const ScoredGroup* group;
    std::vector<const ScoredSample*> samples;
  };
  std::vector<Item> items;
  std::vector<int64_t> lengths;
  for (size_t g = begin; g < end; ++g) {
    Item item{&groups[g], {}};
    int64_t tokens = 0;
    for (const ScoredSample& sample : groups[g].samples) {
      if (!sample.valid || sample.tree.num_sampled_tokens() == 0) continue;
      item.samples.push_back(&sample);
      tokens += sample.tree.num_tokens();
    }
    if (item.samples.empty()) continue;
    const TokenTree& first = item.samples.front()->tree;
    tokens -= static_cast<int64_t>(item.samples.size() - 1) * (first.num_tokens() - first.num_sampled_tokens());
    if (tokens <= options_.micro_batch_tokens) {
      lengths.push_back(tokens);
      items.push_back(std::move(item));
      continue;
    }
    for (const ScoredSample* sample : item.samples) {
      lengths.push_back(sample->tree.num_tokens());
      items.push_back({&groups[g], {sample}});
    }
  }
  std::vector<MicroBatch> batches;
  for (const std::vector<int64_t>& pack : Pack(lengths, options_.micro_batch_tokens, options_.packing)) {
    MicroBatch& batch = batches.emplace_back();
    for (int64_t i : pack) Append(*items[i].group, items[i].samples, batch);
  }
  return batches;
}

absl::Status PolicyUpdate::Check(const MicroBatch& batch, absl::Span<const float> logprobs, int64_t version,
                                 UpdateMetrics& metrics) const {
  if (options_.bit_check == BitCheck::kOff) return absl::OkStatus();
  absl::Status first;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    const LossRow& row = batch.forest.loss_rows[i];
    if (!row.logprob_valid || row.weight_version != version) continue;
    ++metrics.checked_tokens;
    if (std::bit_cast<uint32_t>(logprobs[i]) == std::bit_cast<uint32_t>(row.rollout_logprob)) continue;
    ++metrics.differing_tokens;
    if (!first.ok()) continue;
    first = absl::DataLossError(absl::StrFormat(
        "the bit check failed: %s position %d token %d: the sampler reported %.9g and the learner computes %.9g. What "
        "was sampled is "
        "not what would be trained; look for differing weights, temperature, positions or kernels, or set "
        "check.bit_equal to warn",
        batch.sample_names[row.sample_id], row.position, row.target_id, row.rollout_logprob, logprobs[i]));
  }
  if (first.ok() || options_.bit_check == BitCheck::kError) return first;
  LogWarning(Message(first));
  return absl::OkStatus();
}

absl::Status PolicyUpdate::OptimizerStep(std::vector<MicroBatch>& batches, int64_t num_samples, int64_t version,
                                         double lr, UpdateMetrics& metrics) {
  algos::LossNormalizer normalizer;
  normalizer.num_rows = num_samples;
  for (const MicroBatch& batch : batches) {
    normalizer.num_tokens += static_cast<int64_t>(batch.forest.loss_rows.size());
    normalizer.num_rows_with_tokens += static_cast<int64_t>(batch.sample_names.size());  // Cut leaves empty ones out
  }
  if (batches.empty()) return absl::OkStatus();
  StepResult result;
  do {
    algos::PolicyLossResult total;
    double entropy_sum = 0;
    UpdateMetrics checked;
    absl::Status check;
    learner_.BeginStep(static_cast<int64_t>(batches.size()));
    for (MicroBatch& batch : batches) {
      const auto loss = [&](absl::Span<const float> logprobs, absl::Span<const float> entropies,
                            absl::Span<float> d_logprobs) {
        if (batch.old_logprobs.empty()) {
          // The weights are those before the first optimizer step: this forward pass gives the old log-probs.
          batch.old_logprobs.assign(logprobs.begin(), logprobs.end());
          const absl::Status status = Check(batch, logprobs, version, checked);
          if (check.ok()) check = status;
        }
        total.Add(algos::ComputePolicyLoss(
            {batch.row_begin, logprobs, batch.old_logprobs, batch.ref_logprobs, batch.advantages}, options_.loss,
            normalizer, d_logprobs));
        for (float entropy : entropies) entropy_sum += entropy;
      };
      learner_.AddGradient(batch.forest, loss);
      RETURN_IF_ERROR(check);
    }
    metrics.checked_tokens += checked.checked_tokens;
    metrics.differing_tokens += checked.differing_tokens;
    result = learner_.FinishStep(lr);
    if (result.outcome == StepOutcome::kOverflow) {
      LogWarning(absl::StrFormat("a gradient was too large for the quantum: the step is summed again with 2^%d",
                                 learner_.quantum_log2()));
      continue;
    }
    metrics.loss.Add(total);
    metrics.entropy_sum += entropy_sum;
  } while (result.outcome == StepOutcome::kOverflow);
  metrics.loss_tokens += normalizer.num_tokens;
  ++metrics.optimizer_steps;
  if (result.outcome == StepOutcome::kSkipped) ++metrics.skipped_optimizer_steps;
  metrics.grad_norm = std::max(metrics.grad_norm, result.grad_norm);
  return absl::OkStatus();
}

absl::StatusOr<UpdateMetrics> PolicyUpdate::Run(std::vector<ScoredGroup>& groups, int64_t version,
                                                const uint8_t* packed, const std::function<double(int)>& learning_rate,
                                                const std::function<absl::Status()>& renew_weights) {
  RETURN_IF_ERROR(ComputeAdvantages(groups));
  UpdateMetrics metrics;
  std::vector<std::vector<MicroBatch>> mini_batches;
  std::vector<int64_t> num_samples;
  for (int m = 0; m < options_.mini_batches; ++m) {
    const size_t begin = groups.size() * m / options_.mini_batches,
                 end = groups.size() * (m + 1) / options_.mini_batches;
    mini_batches.push_back(Cut(groups, begin, end));
    num_samples.push_back(0);
    for (size_t g = begin; g < end; ++g) num_samples.back() += static_cast<int64_t>(groups[g].samples.size());
  }
  for (size_t m = 0; m < mini_batches.size(); ++m) {
    for (MicroBatch& batch : mini_batches[m]) {
      metrics.computed_tokens += batch.forest.num_tokens();
      if (options_.loss.kl_coef > 0) {
        batch.ref_logprobs.resize(batch.forest.loss_rows.size());
        learner_.LogProbs(reference_, batch.forest, absl::MakeSpan(batch.ref_logprobs), {});
      }
      if (m == 0) continue;
      batch.old_logprobs.resize(batch.forest.loss_rows.size());
      learner_.LogProbs(packed, batch.forest, absl::MakeSpan(batch.old_logprobs), {});
      RETURN_IF_ERROR(Check(batch, batch.old_logprobs, version, metrics));
    }
  }
  for (size_t m = 0; m < mini_batches.size(); ++m) {
    if (m > 0) RETURN_IF_ERROR(renew_weights());
    RETURN_IF_ERROR(
        OptimizerStep(mini_batches[m], num_samples[m], version, learning_rate(static_cast<int>(m)), metrics));
  }
  return metrics;
}

}  // namespace lockstep::learner
