#include "runtime/job/trainer.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "learner/policy_update.h"
#include "learner/schedule.h"
#include "model/export.h"
#include "model/kernel_signature.h"
#include "rollout/rewards/reward.h"
#include "runtime/base/check.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/job/eval_report.h"
#include "runtime/job/evaluator.h"
#include "runtime/job/progress.h"
#include "runtime/job/prompt_encoder.h"
#include "runtime/job/run_folder.h"
#include "runtime/job/scored_sampler.h"
#include "runtime/job/step_report.h"
#include "runtime/job/stop_signal.h"
#include "runtime/job/trajectory_log.h"
#include "runtime/source/prompt_source.h"

namespace lockstep::job {
namespace {

using Clock = std::chrono::steady_clock;
double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Trainer {
 public:
  explicit Trainer(JobParts parts) : parts_(std::move(parts)), options_(parts_.options), data_(*parts_.data) {}

  absl::Status Run() {
    RETURN_IF_ERROR(Open());
    RETURN_IF_ERROR(PublishWeights());
    LogInfo(
        absl::StrCat("kernels ", model::KernelSignature(parts_.engine.matmul), ", weights ", HashToHex(version_.hash)));
    RETURN_IF_ERROR(WriteStatus("running"));
    absl::Status status = Loop();
    if (absl::IsCancelled(status)) {
      LogInfo(absl::StrCat("stopping: ", status.message()));
      status = absl::OkStatus();
    }
    const absl::Status exported = Export("final");
    if (status.ok()) status = exported;
    const char* state = !status.ok() ? "failed" : step_ < options_.run.steps ? "stopped" : "finished";
    RETURN_IF_ERROR(WriteStatus(state, Message(status)));
    if (status.ok()) {
      Say(absl::StrCat("finished after ", step_, " steps: weight hash ", HashToHex(version_.hash), ", ",
                       checked_tokens_, " tokens checked to the bit"));
    }
    return status;
  }

  Generator& generator() { return *parts_.generator; }

 private:
  absl::Status Open() {
    sampler_ =
        std::make_unique<ScoredSampler>(*parts_.generator, *data_.reward, *data_.text.tokenizer, options_.run.seed);
    ASSIGN_OR_RETURN(folder_, RunFolder::Create(options_.run.dir, ToYaml(options_, /*with_comments=*/false)));
    OpenProgress();

    learner::LearnerConfig config;
    config.dtype = options_.model.dtype;
    config.matmul = parts_.engine.matmul;
    config.recompute = options_.learner.recompute;
    config.max_positions = parts_.engine.max_context;
    config.adamw = options_.learner.adamw;
    config.max_grad_norm = options_.learner.max_grad_norm;
    ASSIGN_OR_RETURN(learner_, learner::Learner::Make(std::move(parts_.model), config, *parts_.pool));
    update_options_.advantage = options_.algorithm.advantage;
    update_options_.loss = LossOptionsOf(options_);
    update_options_.part_weights = options_.reward.weights;
    update_options_.mini_batches = options_.learner.mini_batches;
    update_options_.micro_batch_tokens = options_.learner.micro_batch_tokens;
    update_options_.packing = options_.learner.packing;
    update_options_.bit_check = options_.check.bit_equal;
    RETURN_IF_ERROR(update_options_.loss.Validate());
    if (update_options_.loss.kl_coef > 0) {
      reference_ = Buffer(static_cast<size_t>(learner_->packed_bytes()));
      learner_->Pack(reference_.data());
    }
    update_ = std::make_unique<learner::PolicyUpdate>(*learner_, update_options_, reference_.data());
    return absl::OkStatus();
  }

  // A terminal sees the line that is drawn over, log.txt the plain ones; elsewhere they are the log.
  void OpenProgress() {
    ProgressOutput output = ProgressOutput::Stderr(LogInfo);
    if (output.terminal) {
      output.log = [this](const std::string& line) {
        const absl::Status status = folder_->AppendLog(line);
        if (!status.ok()) LogWarning(Message(status));
      };
    }
    progress_ = std::make_unique<Progress>(options_.run.steps, std::move(output));
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

  // A signal came, here or at a rank that samples. The step at hand is finished, an evaluation is not.
  bool StopWanted() { return StopRequested() || parts_.generator->StopTold(); }

  absl::Status Loop() {
    if (data_.evaluator != nullptr) RETURN_IF_ERROR(Evaluate());
    int skipped_in_a_row = 0;
    for (step_ = 0; step_ < options_.run.steps && !StopWanted();) {
      bool skipped = false;
      RETURN_IF_ERROR(Step(skipped));
      ++step_;
      RETURN_IF_ERROR(WriteStatus("running"));
      skipped_in_a_row = skipped ? skipped_in_a_row + 1 : 0;
      if (skipped_in_a_row >= options_.run.max_skipped_steps) {
        return absl::AbortedError(absl::StrCat(skipped_in_a_row,
                                               " steps in a row had a gradient that is not finite: the run would not "
                                               "recover; the last good weights are exported"));
      }
      if (options_.eval.every > 0 && step_ % options_.eval.every == 0 && step_ < options_.run.steps &&
          data_.evaluator != nullptr) {
        RETURN_IF_ERROR(Evaluate());
      }
      if (options_.run.save_every > 0 && step_ % options_.run.save_every == 0 && step_ < options_.run.steps) {
        RETURN_IF_ERROR(Export(absl::StrFormat("step_%06d", step_)));
      }
    }
    if (StopWanted()) LogInfo("stopping after the step at hand, as asked by a signal");
    if (data_.evaluator != nullptr && !StopWanted()) RETURN_IF_ERROR(Evaluate());
    return absl::OkStatus();
  }

  // Draws the prompts of a step; too long ones are passed over, where that is allowed.
  absl::StatusOr<std::vector<EncodedPrompt>> DrawPrompts() {
    std::vector<EncodedPrompt> prompts;
    while (static_cast<int>(prompts.size()) < options_.rollout.prompts_per_step) {
      ASSIGN_OR_RETURN(EncodedPrompt prompt, data_.encoder->Encode(data_.train->At(next_ordinal_++)));
      if (data_.encoder->Fits(prompt)) prompts.push_back(std::move(prompt));
    }
    return prompts;
  }

  absl::Status Step(bool& skipped) {
    const Clock::time_point start = Clock::now();
    ASSIGN_OR_RETURN(const std::vector<EncodedPrompt> prompts, DrawPrompts());
    ASSIGN_OR_RETURN(ScoredBatch batch, sampler_->Run(prompts, options_.rollout.n, data_.sampling,
                                                      RandomPurpose::kSampling, version_, [] { return false; }));
    StepReport report;
    report.step = step_ + 1;
    report.samples = Summarize(batch);
    report.generate_seconds = batch.generate_seconds;
    report.score_seconds = batch.score_seconds;
    std::vector<learner::ScoredGroup> groups = MakeGroups(prompts, batch);

    const auto learning_rate = [&](int mini_batch) {
      return learner::LearningRate(ScheduleOptionsOf(options_), step_ * options_.learner.mini_batches + mini_batch);
    };
    report.learning_rate = learning_rate(0);
    const Clock::time_point train_start = Clock::now();
    ASSIGN_OR_RETURN(report.update, update_->Run(groups, version_.number, packed_, learning_rate,
                                                 [this] { return RenewPrivately(); }));
    report.train_seconds = SecondsSince(train_start);
    const Clock::time_point publish_start = Clock::now();
    RETURN_IF_ERROR(PublishWeights());
    report.publish_seconds = SecondsSince(publish_start);
    report.flip_us = flip_us_;
    report.weight_hash = HashToHex(version_.hash);
    report.step_seconds = SecondsSince(start);
    skipped =
        report.update.optimizer_steps > 0 && report.update.skipped_optimizer_steps == report.update.optimizer_steps;
    checked_tokens_ += report.update.checked_tokens;
    RETURN_IF_ERROR(WriteTrajectories(prompts, groups, batch));
    return Report(report);
  }

  // The batch's samples as trees, by prompt; takes the sampled runs out of it.
  std::vector<learner::ScoredGroup> MakeGroups(const std::vector<EncodedPrompt>& prompts, ScoredBatch& batch) const {
    std::vector<learner::ScoredGroup> groups(prompts.size());
    for (size_t i = 0; i < batch.results.size(); ++i) {
      const EncodedPrompt& prompt = prompts[i / options_.rollout.n];
      learner::ScoredGroup& group = groups[i / options_.rollout.n];
      group.ordinal = prompt.prompt.ordinal;
      learner::ScoredSample& sample = group.samples.emplace_back();
      sample.sample_id = batch.results[i].run.sample_id;
      sample.reward = batch.rewards[i].reward;
      sample.parts = batch.rewards[i].parts;
      sample.valid = batch.rewards[i].error.empty();
      const NodeId node = sample.tree.AppendContext({}, TokenSource::kPrompt, prompt.ids);
      sample.tree.AppendSampled(sample.tree.End(node), std::move(batch.results[i].run));
    }
    return groups;
  }

  absl::Status Report(const StepReport& report) {
    RETURN_IF_ERROR(folder_->WriteMetrics(ToMetrics(report)));
    if (report.samples.num_invalid > 0) {
      LogWarning(absl::StrCat(report.samples.num_invalid, " of ", report.samples.num_samples,
                              " samples are invalid and left out: ", report.samples.invalid_reason));
    }
    progress_->Step({.step = report.step,
                     .reward = report.samples.reward_mean,
                     .mean_tokens = report.samples.mean_tokens,
                     .tokens_per_s = report.tokens_per_second(),
                     .step_seconds = report.step_seconds,
                     .detail = absl::StrFormat("entropy %.3f  grad %.3f  %.1f s (sample %.1f, train %.1f)",
                                               report.entropy(), report.update.grad_norm, report.step_seconds,
                                               report.generate_seconds, report.train_seconds)});
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
                                 const std::vector<learner::ScoredGroup>& groups, const ScoredBatch& batch) {
    std::vector<Json> samples;
    size_t next = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const learner::ScoredSample& sample : groups[g].samples) {
        samples.push_back(ToJson(Trajectory{.ordinal = groups[g].ordinal,
                                            .sample_id = sample.sample_id,
                                            .tree = &sample.tree,
                                            .prompt_text = data_.text.tokenizer->Decode(prompts[g].ids, false),
                                            .text = batch.texts[next],
                                            .reward = &batch.rewards[next],
                                            .advantage = sample.advantage}));
        ++next;
      }
    }
    return folder_->WriteTrajectories(step_ + 1, samples);
  }

  absl::Status Evaluate() {
    const Clock::time_point start = Clock::now();
    ASSIGN_OR_RETURN(const EvalReport report,
                     data_.evaluator->Run(*sampler_, version_, [this] { return StopWanted(); }));
    StepMetrics metrics;
    metrics.step = step_;
    AddMetrics(report, metrics);
    metrics.Add("seconds/eval", SecondsSince(start));
    RETURN_IF_ERROR(folder_->WriteMetrics(metrics));
    const std::string line = absl::StrCat("evaluation after ", step_, " steps: ", ToText(report));
    Say(line);
    return folder_->AppendLog(line);
  }

  // Where the run stands, and its processes: this one, and those that sample.
  absl::Status WriteStatus(const char* state, const std::string& message = "") {
    Json workers = Json::object();
    for (const auto& [id, pid] : parts_.generator->WorkerPids()) workers[absl::StrCat(id)] = pid;
    Json status = {{"state", state},
                   {"step", step_},
                   {"steps", options_.run.steps},
                   {"weight_hash", HashToHex(version_.hash)},
                   {"pid", getpid()},
                   {"worker_pids", std::move(workers)}};
    if (!message.empty()) status["message"] = message;
    return folder_->WriteStatus(status);
  }

  // A result, for stdout.
  void Say(const std::string& line) {
    progress_->Finish();
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  absl::Status Export(const std::string& name) {
    const std::string dir = folder_->ExportDir(name);
    RETURN_IF_ERROR(model::ExportHf(learner_->model_config(), learner_->parameters(), options_.model.dtype, dir));
    return data_.text.tokenizer->WriteFiles(dir);
  }

  JobParts parts_;
  const RunOptions options_;
  JobData& data_;
  std::unique_ptr<ScoredSampler> sampler_;
  std::unique_ptr<RunFolder> folder_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<learner::Learner> learner_;
  learner::PolicyUpdateOptions update_options_;
  std::unique_ptr<learner::PolicyUpdate> update_;
  Buffer reference_, private_packed_;
  int64_t step_ = 0, next_ordinal_ = 0, next_version_ = 0;
  int64_t checked_tokens_ = 0;
  double flip_us_ = 0;
  WeightVersion version_;
  const uint8_t* packed_ = nullptr;
};

}  // namespace

absl::Status Train(JobParts parts) {
  Trainer trainer(std::move(parts));
  const absl::Status status = trainer.Run();
  const absl::Status finished = trainer.generator().Finish();
  return status.ok() ? finished : status;
}

}  // namespace lockstep::job
