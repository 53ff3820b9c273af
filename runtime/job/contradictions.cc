#include "runtime/job/contradictions.h"

#include "absl/strings/str_cat.h"

namespace lockstep::job {
namespace {

using algos::AdvantageEstimator;

// `path` has an effect only while takes_effect() holds, which `decider` decides.
struct Dependency {
  const char* path;
  const char* decider;
  bool (*takes_effect)(const RunOptions& options);
  const char* wanted;  // what `decider` would have to be
};

bool RewardIsProcess(const RunOptions& o) { return o.reward.kind == "process"; }
bool RewardReadsAnswer(const RunOptions& o) { return o.reward.kind == "arithmetic" || o.reward.kind == "exact_match"; }
bool RewardIsArithmetic(const RunOptions& o) { return o.reward.kind == "arithmetic"; }
bool RewardIsExactMatch(const RunOptions& o) { return o.reward.kind == "exact_match"; }
bool LossClips(const RunOptions& o) { return o.algorithm.loss.objective != algos::Objective::kReinforce; }
bool LossIsPpoClip(const RunOptions& o) { return o.algorithm.loss.objective == algos::Objective::kPpoClip; }
bool NormLengthCounts(const RunOptions& o) {
  return o.algorithm.loss.aggregation == algos::Aggregation::kSeqMeanTokenSumNorm;
}
bool AdvantageDivides(const RunOptions& o) {
  return o.algorithm.advantage.estimator == AdvantageEstimator::kGrpo ||
         o.algorithm.advantage.estimator == AdvantageEstimator::kGdpo;
}
bool AdvantageHasEps(const RunOptions& o) {
  return AdvantageDivides(o) || o.algorithm.advantage.estimator == AdvantageEstimator::kGrpoLoo;
}
bool ScheduleFalls(const RunOptions& o) { return o.learner.schedule.kind != learner::ScheduleOptions::Kind::kConstant; }
bool HasEvalData(const RunOptions& o) { return !o.data.eval.empty(); }

constexpr Dependency kDependencies[] = {
    {"reward.answer_field", "reward.kind", RewardReadsAnswer, "arithmetic or exact_match"},
    {"reward.regex", "reward.kind", RewardIsExactMatch, "exact_match"},
    {"reward.format_bonus", "reward.kind", RewardIsArithmetic, "arithmetic"},
    {"reward.command", "reward.kind", RewardIsProcess, "process"},
    {"reward.num_processes", "reward.kind", RewardIsProcess, "process"},
    {"reward.deadline_ms", "reward.kind", RewardIsProcess, "process"},
    {"reward.max_attempts", "reward.kind", RewardIsProcess, "process"},
    {"reward.weights", "reward.kind", RewardIsProcess, "process"},
    {"algorithm.advantage_std", "algorithm.advantage", AdvantageDivides, "grpo or gdpo"},
    {"algorithm.advantage_eps", "algorithm.advantage", AdvantageHasEps, "grpo, grpo_loo or gdpo"},
    {"algorithm.clip_ratio_low", "algorithm.loss", LossClips, "ppo_clip, gspo or cispo"},
    {"algorithm.clip_ratio_high", "algorithm.loss", LossClips, "ppo_clip, gspo or cispo"},
    {"algorithm.clip_ratio_c", "algorithm.loss", LossIsPpoClip, "ppo_clip"},
    {"algorithm.norm_length_tokens", "algorithm.aggregation", NormLengthCounts, "seq-mean-token-sum-norm"},
    {"learner.min_lr", "learner.schedule", ScheduleFalls, "linear or cosine"},
    {"eval.every", "data.eval", HasEvalData, "a list of files"},
};

}  // namespace

absl::Status CheckContradictions(const RunOptions& options, const std::map<std::string, std::string>& written_at) {
  RunOptions copy = options;
  RunOptions defaults;
  const FieldList list = ListFields(copy);
  const FieldList default_list = ListFields(defaults);
  for (const Dependency& rule : kDependencies) {
    const auto written = written_at.find(rule.path);
    if (written == written_at.end() || rule.takes_effect(options)) continue;
    // A default written out (as in the effective configuration of a run folder) asks for nothing.
    if (FieldText(*list.Find(rule.path)) == FieldText(*default_list.Find(rule.path))) continue;
    const auto decided = written_at.find(rule.decider);
    const std::string where = decided == written_at.end() ? "by default" : absl::StrCat("at ", decided->second);
    return absl::InvalidArgumentError(absl::StrCat(
        written->second, ": ", rule.path, " is ", FieldText(*list.Find(rule.path)), ", but ", rule.decider, " is ",
        FieldText(*list.Find(rule.decider)), " (", where, "): it takes effect only where that is ", rule.wanted));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::job
