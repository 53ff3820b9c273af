#include "runtime/job/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "learner/policy_update.h"
#include "learner/schedule.h"
#include "model/export.h"
#include "model/kernel_signature.h"
#include "rollout/kv_cache.h"
#include "rollout/rewards/reward.h"
#include "runtime/base/check.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/job/run_folder.h"
#include "runtime/job/stop_signal.h"
#include "runtime/job/trajectory_log.h"
#include "runtime/source/prompt_source.h"

namespace lockstep::job {
namespace {

using Clock = std::chrono::steady_clock;
double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A prompt with what it becomes.
struct EncodedPrompt {
  Prompt prompt;
  std::vector<int32_t> ids;
};

rollout::RewardOptions RewardOptionsOf(const RewardOptions& options) {
  rollout::RewardOptions reward;
  static constexpr const char* kKinds[] = {"arithmetic", "json_object", "exact_match", "process"};
  reward.kind = kKinds[static_cast<int>(options.kind)];
  reward.answer_field = options.answer_field;
  reward.regex = options.regex;
  reward.format_bonus = options.format_bonus;
  reward.command = options.command;
  reward.num_processes = options.num_processes;
  reward.deadline_ms = options.deadline_ms;
  reward.max_attempts = options.max_attempts;
  reward.weights = options.weights;
  return reward;
}

algos::AdvantageOptions AdvantageOptionsOf(const AlgorithmOptions& options) {
  algos::AdvantageOptions advantage;
  switch (options.advantage) {
    case Advantage::kGrpo:
      advantage.estimator = algos::AdvantageEstimator::kGrpo;
      break;
    case Advantage::kDrGrpo:
      advantage.estimator = algos::AdvantageEstimator::kDrGrpo;
      break;
    case Advantage::kGrpoLoo:
      advantage.estimator = algos::AdvantageEstimator::kGrpoLoo;
      break;
    case Advantage::kRloo:
      advantage.estimator = algos::AdvantageEstimator::kRloo;
      break;
    case Advantage::kReinforcePp:
      advantage.estimator = algos::AdvantageEstimator::kReinforcePp;
      break;
    case Advantage::kReinforcePpBaseline:
      advantage.estimator = algos::AdvantageEstimator::kReinforcePpBaseline;
      break;
    case Advantage::kGdpo:
      advantage.estimator = algos::AdvantageEstimator::kGdpo;
      break;
  }
  advantage.deviation =
      options.advantage_std == AdvantageStd::kSample ? algos::Deviation::kSample : algos::Deviation::kPopulation;
  advantage.eps = options.advantage_eps;
  return advantage;
}

algos::PolicyLossOptions LossOptionsOf(const AlgorithmOptions& options, int64_t max_tokens) {
  algos::PolicyLossOptions loss;
  switch (options.loss) {
    case Loss::kPpoClip:
      loss.objective = algos::Objective::kPpoClip;
      break;
    case Loss::kReinforce:
      loss.objective = algos::Objective::kReinforce;
      break;
    case Loss::kGspo:
      loss.objective = algos::Objective::kGspoToken;
      break;
    case Loss::kCispo:
      loss.objective = algos::Objective::kCispo;
      break;
  }
  loss.clip_low = options.clip_ratio_low;
  loss.clip_high = options.clip_ratio_high;
  loss.dual_clip = options.clip_ratio_c;
  loss.aggregation = static_cast<algos::Aggregation>(options.aggregation);  // the same list in both
  loss.norm_length = static_cast<double>(options.norm_length_tokens > 0 ? options.norm_length_tokens : max_tokens);
  loss.kl_coef = options.kl_loss_coef;
  loss.kl_estimator = static_cast<algos::KlEstimator>(options.kl_estimator);
  loss.kl_gradient = static_cast<algos::KlGradient>(options.kl_gradient);
  return loss;
}

// Rates of the optimizer steps of a run.
learner::ScheduleOptions ScheduleOf(const RunOptions& options) {
  learner::ScheduleOptions schedule;
  schedule.kind = static_cast<learner::ScheduleOptions::Kind>(options.learner.schedule);  // the same list in both
  schedule.warmup_steps = options.learner.warmup_steps;
  schedule.total_steps = options.run.steps * options.learner.mini_batches;
  schedule.base = options.learner.lr;
  schedule.min = options.learner.min_lr;
  return schedule;
}

class Trainer {
 public:
  explicit Trainer(TrainerParts parts) : parts_(std::move(parts)), options_(parts_.options) {}

  absl::Status Run() {
    RETURN_IF_ERROR(Open());
    RETURN_IF_ERROR(PublishWeights());
    LogInfo(absl::StrCat("kernels ", model::KernelSignature(), ", weights ", HashToHex(version_.hash)));
    absl::Status status = Loop();
    const absl::Status exported = Export("final");
    if (status.ok()) status = exported;
    RETURN_IF_ERROR(folder_->WriteStatus({{"state", status.ok() ? "finished" : "failed"},
                                          {"step", step_},
                                          {"weight_hash", HashToHex(version_.hash)},
                                          {"message", Message(status)}}));
    if (status.ok()) {
      std::printf("finished after %ld steps: weight hash %s, %ld tokens checked to the bit\n", static_cast<long>(step_),
                  HashToHex(version_.hash).c_str(), static_cast<long>(checked_tokens_));
      std::fflush(stdout);
    }
    return status;
  }

  Generator& generator() { return *parts_.generator; }

 private:
  absl::Status Open() {
    const uint64_t seed = options_.run.seed;
    ASSIGN_OR_RETURN(source::PromptSource train,
                     source::PromptSource::Open({options_.data.train, options_.data.shuffle, seed}));
    train_ = std::make_unique<source::PromptSource>(std::move(train));
    if (!options_.data.eval.empty()) {
      ASSIGN_OR_RETURN(source::PromptSource eval, source::PromptSource::Open({options_.data.eval, false, seed}));
      eval_ = std::make_unique<source::PromptSource>(std::move(eval));
    }
    max_prompt_tokens_ = options_.data.max_prompt_tokens > 0
                             ? options_.data.max_prompt_tokens
                             : static_cast<int32_t>(MaxContext()) - options_.rollout.sampling.max_tokens;
    if (options_.data.too_long == TooLong::kError) {
      for (int64_t row = 0; row < train_->num_rows(); ++row) {
        ASSIGN_OR_RETURN(const EncodedPrompt prompt, Encode(train_->At(row)));
        if (static_cast<int64_t>(prompt.ids.size()) > max_prompt_tokens_) return TooLongError(prompt);
      }
    }
    sampling_ = options_.rollout.sampling;
    if (sampling_.stop_ids.empty()) sampling_.stop_ids = DefaultStopIds(*parts_.text.tokenizer, parts_.model.config);
    ASSIGN_OR_RETURN(reward_, rollout::MakeReward(RewardOptionsOf(options_.reward)));
    ASSIGN_OR_RETURN(folder_, RunFolder::Create(options_.run.dir, ToYaml(options_, /*with_comments=*/false)));

    learner::LearnerConfig config;
    config.dtype = ComputeDType(options_);
    config.recompute =
        options_.learner.recompute == Recompute::kLayer ? model::Recompute::kLayer : model::Recompute::kNone;
    config.max_positions = MaxContext();
    config.adamw = {options_.learner.beta1, options_.learner.beta2, options_.learner.eps,
                    options_.learner.weight_decay};
    config.max_grad_norm = options_.learner.max_grad_norm;
    ASSIGN_OR_RETURN(learner_, learner::Learner::Make(std::move(parts_.model), config, *parts_.pool));
    update_options_.advantage = AdvantageOptionsOf(options_.algorithm);
    update_options_.loss = LossOptionsOf(options_.algorithm, sampling_.max_tokens);
    update_options_.part_weights = options_.reward.weights;
    update_options_.mini_batches = options_.learner.mini_batches;
    update_options_.micro_batch_tokens = options_.learner.micro_batch_tokens;
    update_options_.packing = options_.learner.packing == Packing::kBinpack ? learner::PackingStrategy::kBinpack
                                                                            : learner::PackingStrategy::kSequential;
    update_options_.bit_check = static_cast<learner::BitCheck>(options_.check.bit_equal);
    RETURN_IF_ERROR(update_options_.loss.Validate());
    if (update_options_.loss.kl_coef > 0) {
      reference_ = Buffer(static_cast<size_t>(learner_->packed_bytes()));
      learner_->Pack(reference_.data());
    }
    update_ = std::make_unique<learner::PolicyUpdate>(*learner_, update_options_, reference_.data());
    return absl::OkStatus();
  }

  int64_t MaxContext() const {
    const model::ModelConfig& config = learner_ != nullptr ? learner_->model_config() : parts_.model.config;
    return EngineOptionsOf(options_, config).max_context;
  }

  absl::Status TooLongError(const EncodedPrompt& prompt) const {
    return absl::InvalidArgumentError(absl::StrCat(prompt.prompt.location, ": the prompt has ", prompt.ids.size(),
                                                   " tokens and ", max_prompt_tokens_,
                                                   " are allowed: shorten it, raise data.max_prompt_tokens, or set "
                                                   "data.too_long to drop"));
  }

  absl::StatusOr<EncodedPrompt> Encode(Prompt prompt) const {
    ASSIGN_OR_RETURN(const Json row, ParseJson(prompt.row_json));
    absl::StatusOr<std::vector<int32_t>> ids;
    if (row.contains("prompt")) {
      ids = parts_.text.tokenizer->Encode(row["prompt"].get<std::string>(), false);
    } else {
      ids = parts_.text.PromptIds(row["messages"]);
      if (!ids.ok()) return AddContext(ids.status(), prompt.location);
    }
    EncodedPrompt encoded{std::move(prompt), *std::move(ids)};
    if (encoded.ids.empty())
      return absl::InvalidArgumentError(absl::StrCat(encoded.prompt.location, ": the prompt is empty"));
    return encoded;
  }

  // Packs the current weights, makes them what the learner reads, and flips readers over.
  absl::Status PublishWeights() {
    ASSIGN_OR_RETURN(const transport::WeightPublisher::Slot slot,
                     parts_.publisher->BeginWrite(transport::After(absl::Seconds(60))));
    learner_->Pack(slot.bytes.data());
    learner_->UseWeights(slot.bytes.data());
    packed_ = slot.bytes.data();
    version_.number = next_version_++;
    version_.hash = learner_->WeightHash();
    flip_us_ = parts_.publisher->Publish(version_).flip_us;
    return absl::OkStatus();
  }

  absl::Status Loop() {
    if (eval_ != nullptr) RETURN_IF_ERROR(Evaluate());
    int skipped_in_a_row = 0;
    for (step_ = 0; step_ < options_.run.steps && !StopRequested();) {
      bool skipped = false;
      const absl::Status status = Step(skipped);
      if (absl::IsCancelled(status)) {
        LogInfo(absl::StrCat("stopping: ", status.message()));
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(status);
      ++step_;
      skipped_in_a_row = skipped ? skipped_in_a_row + 1 : 0;
      if (skipped_in_a_row >= options_.run.max_skipped_steps) {
        return absl::AbortedError(absl::StrCat(skipped_in_a_row,
                                               " steps in a row had a gradient that is not finite: the run would not "
                                               "recover; the last good weights are exported"));
      }
      if (options_.eval.every > 0 && step_ % options_.eval.every == 0 && step_ < options_.run.steps &&
          eval_ != nullptr) {
        RETURN_IF_ERROR(Evaluate());
      }
      if (options_.run.save_every > 0 && step_ % options_.run.save_every == 0 && step_ < options_.run.steps) {
        RETURN_IF_ERROR(Export(absl::StrFormat("step_%06d", step_)));
      }
    }
    if (StopRequested()) LogInfo("stopping after the step at hand, as asked by a signal");
    if (eval_ != nullptr && !StopRequested()) RETURN_IF_ERROR(Evaluate());
    return absl::OkStatus();
  }

  rollout::GenerationRequest RequestFor(const EncodedPrompt& prompt, int32_t n, const SamplingParams& params,
                                        RandomPurpose purpose) {
    rollout::GenerationRequest request;
    request.request_id = next_request_++;
    request.prompt_ids = prompt.ids;
    request.num_samples = n;
    request.params = params;
    request.key = {options_.run.seed, purpose};
    request.ordinal = prompt.prompt.ordinal;
    return request;
  }

  absl::StatusOr<std::vector<rollout::RewardResult>> Score(const std::vector<EncodedPrompt>& prompts, int32_t n,
                                                           const std::vector<rollout::GenerationResult>& results,
                                                           std::vector<std::string>* texts) {
    std::vector<rollout::RewardRequest> requests;
    for (size_t i = 0; i < results.size(); ++i) {
      std::vector<int32_t> ids;
      for (const SampledToken& token : results[i].run.tokens) ids.push_back(token.id);
      const EncodedPrompt& prompt = prompts[i / n];
      texts->push_back(parts_.text.tokenizer->Decode(ids, /*skip_special_tokens=*/true));
      requests.push_back({absl::StrCat(prompt.prompt.ordinal, "/", results[i].run.sample_id), prompt.prompt.row_json,
                          texts->back(), FinishReasonName(results[i].run.finish_reason)});
    }
    return reward_->Score(requests);
  }

  // Draws the prompts of a step; too long ones are passed over where that is allowed.
  absl::StatusOr<std::vector<EncodedPrompt>> DrawPrompts() {
    std::vector<EncodedPrompt> prompts;
    int64_t dropped = 0;
    while (static_cast<int>(prompts.size()) < options_.rollout.prompts_per_step) {
      ASSIGN_OR_RETURN(EncodedPrompt prompt, Encode(train_->At(next_ordinal_++)));
      if (static_cast<int64_t>(prompt.ids.size()) <= max_prompt_tokens_) {
        prompts.push_back(std::move(prompt));
      } else if (++dropped > train_->num_rows()) {
        return absl::InvalidArgumentError("every prompt of the data is longer than data.max_prompt_tokens");
      }
    }
    return prompts;
  }

  absl::Status Step(bool& skipped) {
    const Clock::time_point start = Clock::now();
    ASSIGN_OR_RETURN(const std::vector<EncodedPrompt> prompts, DrawPrompts());
    const int32_t n = options_.rollout.n;
    std::vector<rollout::GenerationRequest> requests;
    for (const EncodedPrompt& prompt : prompts)
      requests.push_back(RequestFor(prompt, n, sampling_, RandomPurpose::kSampling));
    ASSIGN_OR_RETURN(std::vector<rollout::GenerationResult> results,
                     parts_.generator->Generate(requests, version_, StopRequested));
    const double generate_s = SecondsSince(start);
    std::vector<std::string> texts;
    ASSIGN_OR_RETURN(const std::vector<rollout::RewardResult> rewards, Score(prompts, n, results, &texts));
    const double score_s = SecondsSince(start) - generate_s;

    std::vector<learner::ScoredGroup> groups(prompts.size());
    int64_t completion_tokens = 0, stopped = 0, invalid = 0;
    double reward_sum = 0, reward_squares = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      learner::ScoredGroup& group = groups[i / n];
      group.ordinal = prompts[i / n].prompt.ordinal;
      learner::ScoredSample& sample = group.samples.emplace_back();
      sample.sample_id = results[i].run.sample_id;
      sample.reward = rewards[i].reward;
      sample.parts = rewards[i].parts;
      sample.valid = rewards[i].error.empty();
      completion_tokens += static_cast<int64_t>(results[i].run.tokens.size());
      stopped += results[i].run.finish_reason == FinishReason::kStop;
      const NodeId prompt = sample.tree.AppendContext({}, TokenSource::kPrompt, prompts[i / n].ids);
      sample.tree.AppendSampled(sample.tree.End(prompt), std::move(results[i].run));
      invalid += !sample.valid;
      if (!sample.valid) continue;
      reward_sum += sample.reward;
      reward_squares += sample.reward * sample.reward;
    }
    const int64_t valid = static_cast<int64_t>(results.size()) - invalid;
    const auto learning_rate = [&](int mini_batch) {
      return learner::LearningRate(ScheduleOf(options_), step_ * options_.learner.mini_batches + mini_batch);
    };
    const Clock::time_point train_start = Clock::now();
    const int64_t sampled_version = version_.number;
    ASSIGN_OR_RETURN(const learner::UpdateMetrics update, update_->Run(groups, sampled_version, packed_, learning_rate,
                                                                       [this] { return RenewPrivately(); }));
    const double train_s = SecondsSince(train_start);
    const Clock::time_point publish_start = Clock::now();
    RETURN_IF_ERROR(PublishWeights());
    const double publish_s = SecondsSince(publish_start);
    skipped = update.optimizer_steps > 0 && update.skipped_optimizer_steps == update.optimizer_steps;
    checked_tokens_ += update.checked_tokens;

    StepMetrics metrics;
    metrics.step = step_ + 1;
    const double mean = valid > 0 ? reward_sum / static_cast<double>(valid) : 0;
    const double count = static_cast<double>(std::max<int64_t>(1, update.loss_tokens));
    metrics.Add("reward/mean", mean);
    metrics.Add("reward/std",
                valid > 0 ? std::sqrt(std::max(0.0, reward_squares / static_cast<double>(valid) - mean * mean)) : 0);
    metrics.Add("reward/invalid", static_cast<double>(invalid));
    metrics.Add("completion/mean_tokens", static_cast<double>(completion_tokens) / static_cast<double>(results.size()));
    metrics.Add("completion/stopped", static_cast<double>(stopped) / static_cast<double>(results.size()));
    metrics.Add("policy/loss", update.loss.loss);
    metrics.Add("policy/entropy", update.entropy_sum / count);
    metrics.Add("policy/clip_fraction", update.loss.clipped_tokens / count);
    metrics.Add("policy/approx_kl", update.loss.approx_kl_sum / count);
    metrics.Add("policy/kl_ref", update.loss.kl_ref_sum / count);
    metrics.Add("optimizer/grad_norm", update.grad_norm);
    metrics.Add("optimizer/lr", learning_rate(0));
    metrics.Add("optimizer/skipped", update.skipped_optimizer_steps);
    metrics.Add("check/tokens", static_cast<double>(update.checked_tokens));
    metrics.Add("check/differing", static_cast<double>(update.differing_tokens));
    metrics.Add("seconds/generate", generate_s);
    metrics.Add("seconds/reward", score_s);
    metrics.Add("seconds/train", train_s);
    metrics.Add("seconds/publish", publish_s);
    metrics.Add("seconds/step", SecondsSince(start));
    metrics.Add("speed/generated_tokens_per_s", static_cast<double>(completion_tokens) / generate_s);
    metrics.Add("speed/trained_tokens_per_s", static_cast<double>(update.computed_tokens) / train_s);
    metrics.Add("publish/flip_us", flip_us_);
    metrics.texts.emplace_back("weight_hash", HashToHex(version_.hash));
    RETURN_IF_ERROR(folder_->WriteMetrics(metrics));
    RETURN_IF_ERROR(WriteTrajectories(prompts, groups, rewards, texts));
    RETURN_IF_ERROR(folder_->WriteStatus(
        {{"state", "running"}, {"step", step_ + 1}, {"weight_hash", HashToHex(version_.hash)}, {"pid", getpid()}}));
    total_seconds_ += SecondsSince(start);
    const double left =
        total_seconds_ / static_cast<double>(step_ + 1) * static_cast<double>(options_.run.steps - step_ - 1);
    LogInfo(absl::StrFormat(
        "step %d/%d  reward %.3f  length %.1f  entropy %.3f  grad %.3f  %.0f tokens/s  %.1f s (sample %.1f, train "
        "%.1f)  %.0f s left",
        step_ + 1, options_.run.steps, mean,
        static_cast<double>(completion_tokens) / static_cast<double>(results.size()), update.entropy_sum / count,
        update.grad_norm, static_cast<double>(completion_tokens) / SecondsSince(start), SecondsSince(start), generate_s,
        train_s, left));
    return absl::OkStatus();
  }

  // Between the optimizer steps of one step: the learner's own forward needs the new weights, readers do not.
  absl::Status RenewPrivately() {
    if (private_packed_.size() == 0) private_packed_ = Buffer(static_cast<size_t>(learner_->packed_bytes()));
    learner_->Pack(private_packed_.data());
    learner_->UseWeights(private_packed_.data());
    return absl::OkStatus();
  }

  absl::Status WriteTrajectories(const std::vector<EncodedPrompt>& prompts,
                                 const std::vector<learner::ScoredGroup>& groups,
                                 const std::vector<rollout::RewardResult>& rewards,
                                 const std::vector<std::string>& texts) {
    std::vector<Json> samples;
    size_t next = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const learner::ScoredSample& sample : groups[g].samples) {
        samples.push_back(ToJson(Trajectory{.ordinal = groups[g].ordinal,
                                            .sample_id = sample.sample_id,
                                            .tree = &sample.tree,
                                            .prompt_text = parts_.text.tokenizer->Decode(prompts[g].ids, false),
                                            .text = texts[next],
                                            .reward = &rewards[next],
                                            .advantage = sample.advantage}));
        ++next;
      }
    }
    return folder_->WriteTrajectories(step_ + 1, samples);
  }

  // avg@n and pass@n on the evaluation data, with random numbers that training never uses.
  absl::Status Evaluate() {
    const Clock::time_point start = Clock::now();
    SamplingParams params = sampling_;
    params.temperature = options_.eval.temperature;
    const int64_t count =
        options_.eval.max_prompts > 0 ? std::min(options_.eval.max_prompts, eval_->num_rows()) : eval_->num_rows();
    std::vector<EncodedPrompt> prompts;
    std::vector<rollout::GenerationRequest> requests;
    for (int64_t row = 0; row < count; ++row) {
      ASSIGN_OR_RETURN(EncodedPrompt prompt, Encode(eval_->At(row)));
      requests.push_back(RequestFor(prompt, options_.eval.n, params, RandomPurpose::kEval));
      prompts.push_back(std::move(prompt));
    }
    ASSIGN_OR_RETURN(const std::vector<rollout::GenerationResult> results,
                     parts_.generator->Generate(requests, version_, StopRequested));
    std::vector<std::string> texts;
    ASSIGN_OR_RETURN(const std::vector<rollout::RewardResult> rewards,
                     Score(prompts, options_.eval.n, results, &texts));
    double sum = 0, passed = 0;
    for (size_t p = 0; p < prompts.size(); ++p) {
      bool any = false;
      for (int32_t s = 0; s < options_.eval.n; ++s) {
        const double reward = rewards[p * options_.eval.n + s].reward;
        sum += reward;
        any = any || reward >= 1;
      }
      passed += any;
    }
    const double average = sum / static_cast<double>(rewards.size()),
                 pass = passed / static_cast<double>(prompts.size());
    StepMetrics metrics;
    metrics.step = step_;
    metrics.Add("eval/avg", average);
    metrics.Add("eval/pass", pass);
    metrics.Add("seconds/eval", SecondsSince(start));
    RETURN_IF_ERROR(folder_->WriteMetrics(metrics));
    std::printf("evaluation after %ld steps: avg@%d %.3f, pass@%d %.3f on %zu prompts\n", static_cast<long>(step_),
                options_.eval.n, average, options_.eval.n, pass, prompts.size());
    std::fflush(stdout);
    return absl::OkStatus();
  }

  absl::Status Export(const std::string& name) {
    const std::string dir = folder_->ExportDir(name);
    RETURN_IF_ERROR(model::ExportHf(learner_->model_config(), learner_->parameters(), ComputeDType(options_), dir));
    return parts_.text.tokenizer->WriteFiles(dir);
  }

  TrainerParts parts_;
  const RunOptions options_;
  std::unique_ptr<source::PromptSource> train_, eval_;
  std::unique_ptr<rollout::Reward> reward_;
  std::unique_ptr<RunFolder> folder_;
  std::unique_ptr<learner::Learner> learner_;
  learner::PolicyUpdateOptions update_options_;
  std::unique_ptr<learner::PolicyUpdate> update_;
  Buffer reference_, private_packed_;
  SamplingParams sampling_;
  int64_t max_prompt_tokens_ = 0;
  int64_t step_ = 0, next_ordinal_ = 0, next_request_ = 1, next_version_ = 0;
  int64_t checked_tokens_ = 0;
  double total_seconds_ = 0, flip_us_ = 0;
  WeightVersion version_;
  const uint8_t* packed_ = nullptr;
};

}  // namespace

rollout::EngineOptions EngineOptionsOf(const RunOptions& options, const model::ModelConfig& config) {
  rollout::EngineOptions engine;
  engine.max_batch = options.rollout.max_batch;
  engine.prefill_tokens = options.rollout.prefill_chunk_tokens;
  int64_t context = config.max_position_embeddings;
  if (options.data.max_prompt_tokens > 0) {
    context = std::min<int64_t>(context, options.data.max_prompt_tokens + options.rollout.sampling.max_tokens);
  }
  engine.max_context = static_cast<int32_t>(std::min<int64_t>(context, 4096));
  const int64_t per_sequence = rollout::BlocksFor(engine.max_context);
  int64_t blocks = options.rollout.kv_blocks;
  if (blocks == 0 && options.rollout.kv_memory_mb > 0) {
    blocks = (options.rollout.kv_memory_mb << 20) / rollout::Engine::KvBytesPerBlock(config, ComputeDType(options));
  }
  if (blocks == 0) blocks = std::min<int64_t>(per_sequence * engine.max_batch, 4096);
  engine.kv_blocks = static_cast<int32_t>(std::max(blocks, per_sequence));
  return engine;
}

absl::Status Train(TrainerParts parts) {
  Trainer trainer(std::move(parts));
  const absl::Status status = trainer.Run();
  const absl::Status finished = trainer.generator().Finish();
  return status.ok() ? finished : status;
}

}  // namespace lockstep::job
