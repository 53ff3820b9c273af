// Every option of a run, typed. One YAML file and `section.key=value` overrides fill it (yaml_reader.h); `lockstep
// config` prints it. The text beside each name in List() is that option's comment: what it does, why its default, its
// unit. Validate() returns InvalidArgument "<path> is <value>: it must be <valid>".
//
// Where a room has options of its own (algos, learner, rollout/rewards), the section is made of those: this list only
// gives them their keys.
//
// Plain data: copy freely; nothing here reads files.
#ifndef LOCKSTEP_RUNTIME_JOB_OPTIONS_H_
#define LOCKSTEP_RUNTIME_JOB_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "algos/advantages.h"
#include "algos/policy_loss.h"
#include "learner/adamw.h"
#include "learner/packing.h"
#include "learner/schedule.h"
#include "model/kernels/matmul_backend.h"
#include "rollout/rewards/reward.h"
#include "runtime/base/log.h"
#include "runtime/data/sampling_params.h"
#include "runtime/device/tensor.h"
#include "runtime/job/field_list.h"

// Of headers that bring the whole model with them; their first enumerator is the default.
namespace lockstep::model {
enum class Recompute : uint8_t;
}
namespace lockstep::learner {
enum class BitCheck : uint8_t;
}

namespace lockstep::job {

struct LoopOptions {
  std::string dir = "runs/lockstep";
  uint64_t seed = 1;
  int64_t steps = 20;
  int64_t save_every = 0;
  int32_t max_skipped_steps = 3;

  void List(FieldList& list) {
    list.BeginSection("run", "The run as a whole.");
    list.Add("dir", &dir, "Run folder: effective config, metrics, trajectories, exports. Created if it is missing.");
    list.Add("seed", &seed, "Every random number of the run comes from it: same seed, same data, same bits.");
    list.Add("steps", &steps, "Training steps; one step trains one batch of prompts.");
    list.Add("save_every", &save_every,
             "Exports the model every so many steps. 0: only at the end, since an export is as large as the model.");
    list.Add(
        "max_skipped_steps", &max_skipped_steps,
        "A step with a non-finite gradient norm changes nothing; so many in a row stop the run, since it would not "
        "recover on its own.");
  }
  absl::Status Validate() const;
};

inline constexpr EnumName<DType> kComputeTypeNames[] = {{"f32", DType::kF32}, {"bf16", DType::kBf16}};

struct ModelOptions {
  std::string path;
  DType dtype = DType::kBf16;

  void List(FieldList& list) {
    list.BeginSection("model", "The model to train.");
    list.Add("path", &path, "Hugging Face model folder (config.json, safetensors, tokenizer.json) or a GGUF file.");
    list.AddEnum(
        "dtype", &dtype, kComputeTypeNames,
        "Compute type: f32 or bf16. Master weights and optimizer state are f32 in both. bf16 halves the memory of "
        "weights, caches and activations and so decodes faster; it runs on every machine: where compute.matmul "
        "finds no fast bf16 instructions, bf16 values are multiplied and added in f32.");
  }
  absl::Status Validate() const;
};

enum class TooLong : uint8_t { kError, kDrop };
inline constexpr EnumName<TooLong> kTooLongNames[] = {{"error", TooLong::kError}, {"drop", TooLong::kDrop}};

struct DataOptions {
  std::vector<std::string> train;
  std::vector<std::string> eval;
  bool shuffle = true;
  TooLong too_long = TooLong::kError;
  int32_t max_prompt_tokens = 0;

  void List(FieldList& list) {
    list.BeginSection("data", "Prompts: JSON lines with \"messages\" or \"prompt\"; other fields go to the reward.");
    list.Add("train", &train, "Files to train on, read in this order and over again for as many steps as there are.");
    list.Add("eval", &eval, "Files to evaluate on; never trained.");
    list.Add("shuffle", &shuffle, "Draws the training rows of each epoch in a new order, which run.seed decides.");
    list.AddEnum("too_long", &too_long, kTooLongNames,
                 "A prompt above max_prompt_tokens: error stops before training, drop leaves it out.");
    list.Add("max_prompt_tokens", &max_prompt_tokens,
             "Longest prompt. 0: what rollout.max_tokens leaves of the model's context, at most 4096.");
  }
  absl::Status Validate() const;
};

// Sampling for training. `sampling` holds rollout.temperature, top_k, top_p, max_tokens, min_tokens, stop, stop_ids.
struct RolloutOptions {
  int32_t prompts_per_step = 8;
  int32_t n = 8;
  SamplingParams sampling;
  int32_t max_batch = 64;
  int32_t prefill_chunk_tokens = 256;
  int64_t kv_blocks = 0;
  int64_t kv_memory_mb = 0;

  void List(FieldList& list);
  absl::Status Validate() const;
};

struct RewardOptions : rollout::RewardOptions {
  // One more than a single caller of a reward wants: a run goes on for hours.
  RewardOptions() { max_attempts = 3; }

  void List(FieldList& list);
  absl::Status Validate() const;
};

// `advantage` and `loss` hold the keys advantage*, and loss, clip_ratio_*, aggregation and kl_*.
struct AlgorithmOptions {
  algos::AdvantageOptions advantage;
  algos::PolicyLossOptions loss;  // norm_length is derived: LossOptions
  int64_t norm_length_tokens = 0;

  void List(FieldList& list);
  absl::Status Validate() const;
};

// `schedule` holds the keys lr, min_lr, schedule and warmup_steps; `adamw` beta1 to weight_decay.
struct LearnerOptions {
  learner::ScheduleOptions schedule = {.base = 1e-6};  // total_steps is derived: ScheduleOptionsOf
  learner::AdamWOptions adamw;
  double max_grad_norm = 1.0;
  int32_t mini_batches = 1;
  int64_t micro_batch_tokens = 4096;
  learner::PackingStrategy packing = learner::PackingStrategy::kSequential;
  model::Recompute recompute{};  // kNone

  void List(FieldList& list);
  absl::Status Validate() const;
};

struct CheckOptions {
  learner::BitCheck bit_equal{};  // kError

  void List(FieldList& list);
};

struct EvalOptions {
  int64_t every = 0;
  int32_t n = 4;
  int64_t max_prompts = 0;
  float temperature = 1.0f;

  void List(FieldList& list) {
    list.BeginSection("eval", "Evaluation on data.eval; tokens are limited and cut as in rollout.");
    list.Add("every", &every,
             "Evaluates before the first step, then every so many steps. 0: before and after the run.");
    list.Add("n", &n, "Samples of each prompt: the report gives avg@n and pass@k for k up to n.");
    list.Add("max_prompts", &max_prompts, "Takes only the first so many prompts. 0: all.");
    list.Add("temperature", &temperature, "Sampling temperature of evaluation; 0 is greedy.");
  }
  absl::Status Validate() const;
};

// Empty lists are written `auto`.
struct RoleOptions {
  std::vector<int32_t> learner;
  std::vector<int32_t> rollout;

  void List(FieldList& list) {
    list.BeginSection("roles", "Which MPI rank does what. auto: one rank does all, of several rank 0 learns.");
    list.Add("learner", &learner, "Ranks that train: auto or a list such as [0].");
    list.Add("rollout", &rollout,
             "Ranks that sample: auto or a list such as [1, 2]. A rank in both lists does both, in phases.");
  }
  absl::Status Validate() const;
};

inline constexpr EnumName<model::MatMulChoice> kMatMulChoiceNames[] = {
    {"auto", model::MatMulChoice::kAuto}, {"onednn", model::MatMulChoice::kOneDnn}, {"own", model::MatMulChoice::kOwn}};

struct ComputeOptions {
  int32_t threads = 0;
  model::MatMulChoice matmul = model::MatMulChoice::kAuto;

  void List(FieldList& list) {
    list.BeginSection("compute", "How the machine is used; threads never change a bit of any result.");
    list.Add("threads", &threads,
             "Compute threads of each rank. 0: all CPUs for the learner, shared among the rollout ranks, since they "
             "take turns.");
    list.AddEnum(
        "matmul", &matmul, kMatMulChoiceNames,
        "Who multiplies matrices: own, f32 arithmetic on every machine; onednn, with the machine's bf16 "
        "instructions; auto, onednn for bf16 on CPUs with AMX and on AMD's with AVX512_BF16, which run bf16 at "
        "full rate, else own. Where onednn's start-up test of equal bits fails, one line in the log says so "
        "and own takes over, on all ranks. Bits differ between the two.");
  }
  absl::Status Validate() const;
};

inline constexpr EnumName<LogLevel> kLogLevelNames[] = {{"debug", LogLevel::kDebug},
                                                        {"info", LogLevel::kInfo},
                                                        {"warning", LogLevel::kWarning},
                                                        {"error", LogLevel::kError}};

struct LogOptions {
  LogLevel level = LogLevel::kInfo;

  void List(FieldList& list) {
    list.BeginSection("log", "What people read.");
    list.AddEnum("level", &level, kLogLevelNames, "Lines below this level are dropped.");
  }
};

struct RunOptions {
  LoopOptions run;
  ModelOptions model;
  DataOptions data;
  RolloutOptions rollout;
  RewardOptions reward;
  AlgorithmOptions algorithm;
  LearnerOptions learner;
  CheckOptions check;
  EvalOptions eval;
  RoleOptions roles;
  ComputeOptions compute;
  LogOptions log;

  // All sections, and what only several of them together can tell.
  absl::Status Validate() const;
};

// What the sections' own structs leave to the run as a whole: the length that the loss is normed by, the optimizer
// steps that the schedule spans.
algos::PolicyLossOptions LossOptionsOf(const RunOptions& options);
learner::ScheduleOptions ScheduleOptionsOf(const RunOptions& options);

// The one list. It points into `options`, which must outlive it.
FieldList ListFields(RunOptions& options);

// All options as YAML, one section after the other; with comments it is the reference that `lockstep config` prints,
// and without them the effective configuration that a run folder keeps. Reading it back gives equal options.
std::string ToYaml(const RunOptions& options, bool with_comments);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_OPTIONS_H_
