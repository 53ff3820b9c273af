#include "algos/advantages.h"

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace lockstep::algos {
namespace {

using Samples = std::vector<size_t>;

bool IsValid(const RewardBatch& batch, size_t i) { return batch.valid.empty() || batch.valid[i]; }

double Mean(const std::vector<double>& values, const Samples& samples) {
  double sum = 0;
  for (size_t i : samples) sum += values[i];
  return sum / static_cast<double>(samples.size());
}

bool AllEqual(const std::vector<double>& values, const Samples& samples) {
  for (size_t i : samples) {
    if (values[i] != values[samples.front()]) return false;
  }
  return true;
}

double StandardDeviation(const std::vector<double>& values, const Samples& samples, Deviation deviation) {
  const double mean = Mean(values, samples);
  double sum = 0;
  for (size_t i : samples) sum += (values[i] - mean) * (values[i] - mean);
  const double n = static_cast<double>(samples.size()) - (deviation == Deviation::kSample ? 1 : 0);
  return std::sqrt(sum / n);
}

// Valid samples of each group, in order.
std::map<int32_t, Samples> GroupsOf(const RewardBatch& batch) {
  std::map<int32_t, Samples> groups;
  for (size_t i = 0; i < batch.groups.size(); ++i) {
    if (IsValid(batch, i)) groups[batch.groups[i]].push_back(i);
  }
  return groups;
}

void Grpo(const std::vector<double>& rewards, const Samples& group, const AdvantageOptions& options,
          std::vector<double>& out) {
  if (group.size() < 2 || AllEqual(rewards, group)) return;
  const double mean = Mean(rewards, group);
  const double std = StandardDeviation(rewards, group, options.deviation);
  for (size_t i : group) out[i] = std == 0 ? 0.0 : (rewards[i] - mean) / (std + options.eps);
}

void Centre(const std::vector<double>& rewards, const Samples& group, double factor, std::vector<double>& out) {
  if (group.size() < 2 || AllEqual(rewards, group)) return;
  const double mean = Mean(rewards, group);
  for (size_t i : group) out[i] = factor * (rewards[i] - mean);
}

void GrpoLeaveOneOut(const std::vector<double>& rewards, const Samples& group, const AdvantageOptions& options,
                     std::vector<double>& out) {
  if (group.size() < 2 || AllEqual(rewards, group)) return;
  for (size_t i : group) {
    Samples others;
    for (size_t j : group) {
      if (j != i) others.push_back(j);
    }
    const double baseline = Mean(rewards, others);
    const bool constant = others.size() < 2 || AllEqual(rewards, others);
    const double std = constant ? 0 : StandardDeviation(rewards, others, Deviation::kSample);
    out[i] = std == 0 ? rewards[i] - baseline : (rewards[i] - baseline) / (std + options.eps);
  }
}

// Normalises the valid samples over the batch; each counts as often as it has tokens, or once.
void Whiten(const RewardBatch& batch, Whitening whitening, std::vector<double>& values) {
  const bool by_sample = whitening == Whitening::kSequenceSampleStd;
  double total = 0, sum = 0;
  const auto weight = [&](size_t i) {
    if (!IsValid(batch, i)) return 0.0;
    return by_sample || batch.token_counts.empty() ? 1.0 : static_cast<double>(batch.token_counts[i]);
  };
  for (size_t i = 0; i < values.size(); ++i) {
    total += weight(i);
    if (weight(i) > 0) sum += weight(i) * values[i];
  }
  if (total == 0) return;
  const double mean = sum / total;
  double squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (weight(i) > 0) squares += weight(i) * (values[i] - mean) * (values[i] - mean);
  }
  double divisor = 1;
  switch (whitening) {
    case Whitening::kPopulationFloor:
      divisor = std::sqrt(std::max(squares / total, 1e-8));
      break;
    case Whitening::kSampleEpsInside:
      divisor = std::sqrt((total > 1 ? squares / (total - 1) : 0) + 1e-8);
      break;
    case Whitening::kSequenceSampleStd: {
      const double std = total > 1 ? std::sqrt(squares / (total - 1)) : 0;
      divisor = std == 0 ? 1 : std;
      break;
    }
  }
  for (size_t i = 0; i < values.size(); ++i) values[i] = IsValid(batch, i) ? (values[i] - mean) / divisor : 0.0;
}

}  // namespace

absl::Status AdvantageOptions::Validate() const {
  if (!(eps >= 0)) return absl::InvalidArgumentError(absl::StrCat("eps is ", eps, ": it must be 0 or positive"));
  return absl::OkStatus();
}

std::vector<double> ComputeAdvantages(const RewardBatch& batch, const AdvantageOptions& options) {
  std::vector<double> out(batch.groups.size(), 0.0);
  const std::map<int32_t, Samples> groups = GroupsOf(batch);
  if (options.estimator == AdvantageEstimator::kGdpo) {
    CHECK_EQ(batch.parts.size(), options.part_weights.size());
    for (size_t part = 0; part < batch.parts.size(); ++part) {
      std::vector<double> normalised(out.size(), 0.0);
      for (const auto& [id, group] : groups) Grpo(batch.parts[part], group, options, normalised);
      for (size_t i = 0; i < out.size(); ++i) out[i] += options.part_weights[part] * normalised[i];
    }
    Whiten(batch, options.whitening, out);
    return out;
  }
  CHECK_EQ(batch.rewards.size(), batch.groups.size());
  for (const auto& [id, group] : groups) {
    const double n = static_cast<double>(group.size());
    switch (options.estimator) {
      case AdvantageEstimator::kGrpo:
        Grpo(batch.rewards, group, options, out);
        break;
      case AdvantageEstimator::kDrGrpo:
      case AdvantageEstimator::kReinforcePpBaseline:
        Centre(batch.rewards, group, 1.0, out);
        break;
      case AdvantageEstimator::kRloo:
        Centre(batch.rewards, group, n > 1 ? n / (n - 1) : 0.0, out);
        break;
      case AdvantageEstimator::kGrpoLoo:
        GrpoLeaveOneOut(batch.rewards, group, options, out);
        break;
      case AdvantageEstimator::kReinforcePp:
        for (size_t i : group) out[i] = batch.rewards[i];
        break;
      case AdvantageEstimator::kGdpo:
        break;
    }
  }
  if (options.estimator == AdvantageEstimator::kReinforcePp ||
      options.estimator == AdvantageEstimator::kReinforcePpBaseline) {
    Whiten(batch, options.whitening, out);
  }
  return out;
}

std::vector<bool> GroupFilter(const RewardBatch& batch) {
  std::map<int32_t, bool> has_signal;
  for (const auto& [id, group] : GroupsOf(batch)) has_signal[id] = !AllEqual(batch.rewards, group);
  std::vector<bool> kept;
  for (int32_t group : batch.groups) kept.push_back(has_signal[group]);
  return kept;
}

}  // namespace lockstep::algos
