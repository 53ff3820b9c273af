#include "runtime/job/options.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "learner/policy_update.h"
#include "model/training_pass.h"
#include "runtime/base/status.h"

namespace lockstep::job {
namespace {

// Comments of `lockstep config` wrap at this column.
constexpr size_t kCommentColumns = 110;

template <typename T>
absl::Status Bad(const char* path, const T& value, const char* valid) {
  return absl::InvalidArgumentError(absl::StrCat(path, " is ", value, ": it must be ", valid));
}

template <typename T>
absl::Status AtLeast(const char* path, T value, T least) {
  if (value >= least) return absl::OkStatus();
  return Bad(path, value, absl::StrCat(least, " or more").c_str());
}

absl::Status Finite(const char* path, double value, double low, double high, const char* valid) {
  if (std::isfinite(value) && value >= low && value <= high) return absl::OkStatus();
  return Bad(path, value, valid);
}

absl::Status NoEmptyText(const char* path, const std::vector<std::string>& texts) {
  if (std::find(texts.begin(), texts.end(), "") == texts.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, " holds an empty text: name what is meant or leave it out"));
}

void AppendComment(const char* comment, const std::string& indent, std::string& yaml) {
  std::string line;
  const auto flush = [&] {
    if (!line.empty()) absl::StrAppend(&yaml, indent, "#", line, "\n");
    line.clear();
  };
  for (const char* at = comment; *at != '\0';) {
    const char* end = at;
    while (*end != '\0' && *end != ' ') ++end;
    const std::string word(at, end);
    if (indent.size() + line.size() + word.size() + 2 > kCommentColumns) flush();
    absl::StrAppend(&line, " ", word);
    at = *end == ' ' ? end + 1 : end;
  }
  flush();
}

constexpr double kHuge = 1e30;

using algos::AdvantageEstimator, algos::Aggregation, algos::Deviation, algos::KlEstimator, algos::KlGradient,
    algos::Objective;
using learner::BitCheck, learner::PackingStrategy, model::Recompute;
using ScheduleKind = learner::ScheduleOptions::Kind;

constexpr EnumName<AdvantageEstimator> kAdvantageNames[] = {
    {"grpo", AdvantageEstimator::kGrpo},
    {"dr_grpo", AdvantageEstimator::kDrGrpo},
    {"grpo_loo", AdvantageEstimator::kGrpoLoo},
    {"rloo", AdvantageEstimator::kRloo},
    {"reinforce_pp", AdvantageEstimator::kReinforcePp},
    {"reinforce_pp_baseline", AdvantageEstimator::kReinforcePpBaseline},
    {"gdpo", AdvantageEstimator::kGdpo}};
constexpr EnumName<Deviation> kDeviationNames[] = {{"sample", Deviation::kSample},
                                                   {"population", Deviation::kPopulation}};
constexpr EnumName<Objective> kLossNames[] = {{"ppo_clip", Objective::kPpoClip},
                                              {"reinforce", Objective::kReinforce},
                                              {"gspo", Objective::kGspoToken},
                                              {"cispo", Objective::kCispo}};
constexpr EnumName<Aggregation> kAggregationNames[] = {
    {"token-mean", Aggregation::kTokenMean},
    {"seq-mean-token-mean", Aggregation::kSeqMeanTokenMean},
    {"seq-mean-token-mean-all-rows", Aggregation::kSeqMeanTokenMeanAllRows},
    {"seq-mean-token-sum", Aggregation::kSeqMeanTokenSum},
    {"seq-mean-token-sum-norm", Aggregation::kSeqMeanTokenSumNorm}};
constexpr EnumName<KlEstimator> kKlEstimatorNames[] = {
    {"k1", KlEstimator::kK1}, {"k2", KlEstimator::kK2}, {"k3", KlEstimator::kK3}};
constexpr EnumName<KlGradient> kKlGradientNames[] = {{"pathwise", KlGradient::kPathwise},
                                                     {"score", KlGradient::kScore},
                                                     {"straight_through_k2", KlGradient::kStraightThroughK2}};
constexpr EnumName<ScheduleKind> kScheduleNames[] = {
    {"constant", ScheduleKind::kConstant}, {"linear", ScheduleKind::kLinear}, {"cosine", ScheduleKind::kCosine}};
constexpr EnumName<PackingStrategy> kPackingNames[] = {{"sequential", PackingStrategy::kSequential},
                                                       {"binpack", PackingStrategy::kBinpack}};
constexpr EnumName<Recompute> kRecomputeNames[] = {{"none", Recompute::kNone}, {"layer", Recompute::kLayer}};
constexpr EnumName<BitCheck> kBitCheckNames[] = {
    {"error", BitCheck::kError}, {"warn", BitCheck::kWarn}, {"off", BitCheck::kOff}};

}  // namespace

void RolloutOptions::List(FieldList& list) {
  list.BeginSection("rollout", "Sampling for training.");
  list.Add("prompts_per_step", &prompts_per_step, "Prompts in the batch of one step.");
  list.Add("n", &n, "Samples of each prompt: the group that advantages compare.");
  list.Add("temperature", &sampling.temperature,
           "Divides the logits. 1 samples what is trained; 0 is greedy and leaves a group nothing to compare.");
  list.Add("top_k", &sampling.top_k, "Keeps the k most probable tokens. 0: all; cutting tokens biases the gradient.");
  list.Add("top_p", &sampling.top_p, "Keeps the smallest set of tokens whose probability reaches this. 1: all.");
  list.Add("max_tokens", &sampling.max_tokens, "New tokens of a completion at most.");
  list.Add("min_tokens", &sampling.min_tokens, "New tokens of a completion at least: stop ids are banned before.");
  list.Add("stop", &sampling.stop, "Texts that end a completion; they stay part of it.");
  list.Add("stop_ids", &sampling.stop_ids, "Token ids that end a completion. auto: the end-of-turn ids of the model.");
  list.Add("max_batch", &max_batch,
           "Completions decoded together at most, by one rollout rank. It never changes a bit.");
  list.Add("prefill_chunk_tokens", &prefill_chunk_tokens,
           "Prompt tokens that join a decoding batch at a time: larger prefills faster, smaller stalls decoding less.");
  list.Add("kv_blocks", &kv_blocks,
           "Size of the key-value cache in blocks of 64 positions; it must hold one sample of full length, and a small "
           "one only "
           "costs time. 0: by kv_memory_mb.");
  list.Add("kv_memory_mb", &kv_memory_mb,
           "Size of the key-value cache in MiB. 0: enough for max_batch samples of full length, at most 4096 blocks.");
}

absl::Status RolloutOptions::Validate() const {
  RETURN_IF_ERROR(AtLeast("rollout.prompts_per_step", prompts_per_step, 1));
  RETURN_IF_ERROR(AtLeast("rollout.n", n, 1));
  // A step holds all its samples in memory at once.
  constexpr int64_t kMaxSamples = int64_t{1} << 20;
  if (const int64_t samples = int64_t{prompts_per_step} * n; samples > kMaxSamples) {
    return absl::InvalidArgumentError(absl::StrCat("rollout.prompts_per_step is ", prompts_per_step,
                                                   " and rollout.n is ", n, ", ", samples, " samples a step: at most ",
                                                   kMaxSamples, " fit; lower one of them"));
  }
  RETURN_IF_ERROR(AtLeast("rollout.max_batch", max_batch, 1));
  RETURN_IF_ERROR(AtLeast("rollout.prefill_chunk_tokens", prefill_chunk_tokens, 1));
  RETURN_IF_ERROR(AtLeast<int64_t>("rollout.kv_blocks", kv_blocks, 0));
  RETURN_IF_ERROR(AtLeast<int64_t>("rollout.kv_memory_mb", kv_memory_mb, 0));
  if (kv_blocks > 0 && kv_memory_mb > 0) {
    return absl::InvalidArgumentError(absl::StrCat("rollout.kv_blocks is ", kv_blocks, " and rollout.kv_memory_mb is ",
                                                   kv_memory_mb, ": both size the same cache; set one of them"));
  }
  const absl::Status status = sampling.Validate();
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat("rollout.", Message(status)));
}

void RewardOptions::List(FieldList& list) {
  list.BeginSection("reward", "What a completion is worth.");
  list.AddChoice(
      "kind", &kind, {"arithmetic", "json_object", "exact_match", "process"},
      "arithmetic: the last number equals the answer. json_object: one JSON object with the wanted keys. "
      "exact_match: what the regex extracts equals the answer. process: a command of yours, in any language.");
  list.Add("answer_field", &answer_field, "Field of the data row that holds the answer (arithmetic, exact_match).");
  list.Add("regex", &regex,
           "exact_match: Perl-compatible expression; its last match in the completion counts, group 1 if it has one. "
           "Empty: the whole completion, trimmed.");
  list.Add("format_bonus", &format_bonus, "arithmetic: added when the completion is the number and nothing else.");
  list.Add("command", &command, "process: program and arguments; speaks JSON lines on stdin and stdout.");
  list.Add("num_processes", &num_processes, "process: how many run at the same time.");
  list.Add("deadline_ms", &deadline_ms, "process: a request without an answer by then restarts the process.");
  list.Add("max_attempts", &max_attempts,
           "process: times that a request is sent before its sample counts as invalid and leaves its group.");
  list.Add(
      "weights", &weights,
      "process: weight of each named reward in the sum, such as {correct: 1, short: 0.1}. Names not listed count 1.");
}

absl::Status RewardOptions::Validate() const {
  if (kind == "process" && command.empty()) {
    return absl::InvalidArgumentError(
        "reward.kind is process, which needs reward.command: such as [python3, reward.py]");
  }
  RETURN_IF_ERROR(rollout::RewardOptions::Validate());
  return NoEmptyText("reward.command", command);
}

void AlgorithmOptions::List(FieldList& list) {
  list.BeginSection("algorithm", "Advantages and losses.");
  list.AddEnum(
      "advantage", &advantage.estimator, kAdvantageNames,
      "grpo: (r - mean) / std within the group. dr_grpo: r - mean. grpo_loo, rloo: the mean of the others. "
      "reinforce_pp, reinforce_pp_baseline: whitened over the batch. gdpo: each named reward on its own first.");
  list.AddEnum("advantage_std", &advantage.deviation, kDeviationNames,
               "Standard deviation within a group: sample divides by n - 1, population by n.");
  list.Add("advantage_eps", &advantage.eps, "Added to that deviation, so that nearly equal rewards do not explode.");
  list.AddEnum(
      "loss", &loss.objective, kLossNames,
      "ppo_clip: clipped ratio to old_logprobs. gspo: one ratio for the whole sample. cispo: clipped weight, every "
      "token keeps a gradient. reinforce: plain policy gradient.");
  list.Add("clip_ratio_low", &loss.clip_low, "The ratio is clipped from below at 1 - clip_ratio_low.");
  list.Add("clip_ratio_high", &loss.clip_high, "And from above at 1 + clip_ratio_high; more than low is clip-higher.");
  list.Add("clip_ratio_c", &loss.dual_clip,
           "Dual clip: bounds the loss of a bad token by c times its advantage. 0: off.");
  list.AddEnum(
      "aggregation", &loss.aggregation, kAggregationNames,
      "How token losses become one number; denominators count the whole batch, never a rank or a micro-batch.");
  list.Add("norm_length_tokens", &norm_length_tokens,
           "seq-mean-token-sum-norm (Dr.GRPO) divides by it. 0: rollout.max_tokens.");
  list.Add("kl_loss_coef", &loss.kl_coef,
           "Weight of the KL to the model that training began from. 0: off, and no reference model is kept in memory.");
  list.AddEnum("kl_estimator", &loss.kl_estimator, kKlEstimatorNames,
               "k1, k2 or k3 (Schulman): k3 is never negative and has low variance.");
  list.AddEnum("kl_gradient", &loss.kl_gradient, kKlGradientNames,
               "pathwise: of the estimator itself. score: adds the score-function term. straight_through_k2: k2's.");
}

absl::Status AlgorithmOptions::Validate() const {
  RETURN_IF_ERROR(Finite("algorithm.advantage_eps", advantage.eps, 0, kHuge, "0 or more"));
  RETURN_IF_ERROR(Finite("algorithm.clip_ratio_low", loss.clip_low, 0, 1, "from 0 to 1"));
  RETURN_IF_ERROR(Finite("algorithm.clip_ratio_high", loss.clip_high, 0, kHuge, "0 or more"));
  if (loss.dual_clip != 0) {
    RETURN_IF_ERROR(
        Finite("algorithm.clip_ratio_c", loss.dual_clip, std::nextafter(1.0, 2.0), kHuge, "0 (off) or above 1"));
  }
  RETURN_IF_ERROR(AtLeast<int64_t>("algorithm.norm_length_tokens", norm_length_tokens, 0));
  return Finite("algorithm.kl_loss_coef", loss.kl_coef, 0, kHuge, "0 (off) or more");
}

void CheckOptions::List(FieldList& list) {
  list.BeginSection("check", "What the run proves about itself.");
  list.AddEnum("bit_equal", &bit_equal, kBitCheckNames,
               "Compares old_logprobs with rollout_logprobs, bit for bit, on every trained token of the learner's own "
               "weight version. error stops at the first difference and names it; warn counts; off does not look.");
}

void LearnerOptions::List(FieldList& list) {
  list.BeginSection("learner", "Optimizer (AdamW) and how the batch is cut.");
  list.Add("lr", &schedule.base, "Learning rate after warm-up.");
  list.Add("min_lr", &schedule.min, "Where linear and cosine end.");
  list.AddEnum("schedule", &schedule.kind, kScheduleNames,
               "constant, linear or cosine, over all optimizer steps of the run.");
  list.Add("warmup_steps", &schedule.warmup_steps,
           "Optimizer steps over which the rate rises; the first one already moves (1/warmup_steps of lr). 0: none.");
  list.Add("beta1", &adamw.beta1, "Decay of the mean of gradients.");
  list.Add("beta2", &adamw.beta2, "Decay of the mean of squared gradients.");
  list.Add("eps", &adamw.eps, "Added to the root of the second moment, after bias correction.");
  list.Add("weight_decay", &adamw.weight_decay, "Decoupled decay. 0: none, as is usual in RL.");
  list.Add("max_grad_norm", &max_grad_norm, "Gradients of a larger global norm are scaled down to it. 0: never.");
  list.Add("mini_batches", &mini_batches,
           "Optimizer steps that a step's batch is cut into; old_logprobs belong to the weights before the first one.");
  list.Add(
      "micro_batch_tokens", &micro_batch_tokens,
      "Tokens that one forward and backward holds at most: more is faster and takes more memory for activations. A "
      "single longer sample is taken alone.");
  list.AddEnum("packing", &packing, kPackingNames,
               "How groups fill micro-batches: sequential (in order) or binpack (fewer, fuller ones).");
  list.AddEnum(
      "recompute", &recompute, kRecomputeNames,
      "layer keeps only each layer's input and computes the rest again in backward: a third more work, far less "
      "memory.");
}

absl::Status LearnerOptions::Validate() const {
  RETURN_IF_ERROR(Finite("learner.lr", schedule.base, 0, 1e3, "from 0 to 1000"));
  RETURN_IF_ERROR(Finite("learner.min_lr", schedule.min, 0, schedule.base, "from 0 to learner.lr"));
  RETURN_IF_ERROR(AtLeast<int64_t>("learner.warmup_steps", schedule.warmup_steps, 0));
  const double below_one = std::nextafter(1.0, 0.0);
  RETURN_IF_ERROR(Finite("learner.beta1", adamw.beta1, 0, below_one, "from 0 to below 1"));
  RETURN_IF_ERROR(Finite("learner.beta2", adamw.beta2, 0, below_one, "from 0 to below 1"));
  RETURN_IF_ERROR(Finite("learner.eps", adamw.eps, 1e-30, 1, "above 0 and at most 1"));
  RETURN_IF_ERROR(Finite("learner.weight_decay", adamw.weight_decay, 0, kHuge, "0 or more"));
  RETURN_IF_ERROR(Finite("learner.max_grad_norm", max_grad_norm, 0, kHuge, "0 (no clipping) or more"));
  RETURN_IF_ERROR(AtLeast("learner.mini_batches", mini_batches, 1));
  return AtLeast<int64_t>("learner.micro_batch_tokens", micro_batch_tokens, 1);
}

absl::Status LoopOptions::Validate() const {
  if (dir.empty()) return Bad("run.dir", "empty", "the folder for the run's files");
  RETURN_IF_ERROR(AtLeast<int64_t>("run.steps", steps, 0));
  RETURN_IF_ERROR(AtLeast<int64_t>("run.save_every", save_every, 0));
  return AtLeast("run.max_skipped_steps", max_skipped_steps, 1);
}

absl::Status ModelOptions::Validate() const {
  if (path.empty()) return Bad("model.path", "empty", "a Hugging Face model folder or a GGUF file");
  return absl::OkStatus();
}

absl::Status DataOptions::Validate() const {
  RETURN_IF_ERROR(NoEmptyText("data.train", train));
  RETURN_IF_ERROR(NoEmptyText("data.eval", eval));
  return AtLeast("data.max_prompt_tokens", max_prompt_tokens, 0);
}

absl::Status EvalOptions::Validate() const {
  RETURN_IF_ERROR(AtLeast<int64_t>("eval.every", every, 0));
  RETURN_IF_ERROR(AtLeast("eval.n", n, 1));
  RETURN_IF_ERROR(AtLeast<int64_t>("eval.max_prompts", max_prompts, 0));
  SamplingParams params;
  params.temperature = temperature;
  const absl::Status status = params.Validate();
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat("eval.", Message(status)));
}

absl::Status RoleOptions::Validate() const {
  for (const auto& [path, ranks] : {std::pair("roles.learner", &learner), std::pair("roles.rollout", &rollout)}) {
    for (size_t i = 0; i < ranks->size(); ++i) {
      const int32_t rank = (*ranks)[i];
      if (rank < 0) return Bad(path, rank, "ranks from 0 up");
      if (std::count(ranks->begin(), ranks->end(), rank) > 1) return Bad(path, rank, "a list that names a rank once");
    }
  }
  if (learner.empty() != rollout.empty()) {
    const bool set = !learner.empty();
    return absl::InvalidArgumentError(absl::StrCat(set ? "roles.learner" : "roles.rollout", " is a list and ",
                                                   set ? "roles.rollout" : "roles.learner",
                                                   " is auto: set both or neither"));
  }
  return absl::OkStatus();
}

absl::Status ComputeOptions::Validate() const { return AtLeast("compute.threads", threads, 0); }

absl::Status RunOptions::Validate() const {
  RETURN_IF_ERROR(run.Validate());
  RETURN_IF_ERROR(model.Validate());
  RETURN_IF_ERROR(data.Validate());
  RETURN_IF_ERROR(rollout.Validate());
  RETURN_IF_ERROR(reward.Validate());
  RETURN_IF_ERROR(algorithm.Validate());
  RETURN_IF_ERROR(learner.Validate());
  RETURN_IF_ERROR(eval.Validate());
  RETURN_IF_ERROR(roles.Validate());
  RETURN_IF_ERROR(compute.Validate());
  if (learner.mini_batches > rollout.prompts_per_step) {
    return absl::InvalidArgumentError(
        absl::StrCat("learner.mini_batches is ", learner.mini_batches, " and rollout.prompts_per_step is ",
                     rollout.prompts_per_step, ": a mini-batch holds whole prompt groups, so it needs one at least"));
  }
  return absl::OkStatus();
}

FieldList ListFields(RunOptions& options) {
  FieldList list;
  options.run.List(list);
  options.model.List(list);
  options.data.List(list);
  options.rollout.List(list);
  options.reward.List(list);
  options.algorithm.List(list);
  options.learner.List(list);
  options.check.List(list);
  options.eval.List(list);
  options.roles.List(list);
  options.compute.List(list);
  options.log.List(list);
  return list;
}

std::string ToYaml(const RunOptions& options, bool with_comments) {
  RunOptions copy = options;  // the list wants writable addresses
  const FieldList list = ListFields(copy);
  std::string yaml;
  for (const FieldList::Section& section : list.sections()) {
    if (with_comments) {
      if (!yaml.empty()) yaml += "\n";
      AppendComment(section.comment, "", yaml);
    }
    absl::StrAppend(&yaml, section.path, ":\n");
    const std::string prefix = section.path + ".";
    for (const Field& field : list.fields()) {
      if (field.path.compare(0, prefix.size(), prefix) != 0) continue;
      if (with_comments) {
        AppendComment(field.comment, "  ", yaml);
        if (std::holds_alternative<EnumField>(field.value)) AppendComment(FieldTypeText(field).c_str(), "  ", yaml);
      }
      absl::StrAppend(&yaml, "  ", field.path.substr(prefix.size()), ": ", FieldText(field), "\n");
    }
  }
  return yaml;
}

algos::PolicyLossOptions LossOptionsOf(const RunOptions& options) {
  algos::PolicyLossOptions loss = options.algorithm.loss;
  const int64_t norm_length = options.algorithm.norm_length_tokens;
  loss.norm_length = static_cast<double>(norm_length > 0 ? norm_length : options.rollout.sampling.max_tokens);
  return loss;
}

learner::ScheduleOptions ScheduleOptionsOf(const RunOptions& options) {
  learner::ScheduleOptions schedule = options.learner.schedule;
  schedule.total_steps = options.run.steps * options.learner.mini_batches;
  return schedule;
}

}  // namespace lockstep::job
