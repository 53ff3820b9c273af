#include "runtime/job/foreign_names.h"

namespace lockstep::job {
namespace {

constexpr ForeignName kForeignNames[] = {
    {"num_generations", "rollout.n"},
    {"n_samples_per_prompt", "rollout.n"},
    {"group_size", "rollout.n"},
    {"train_batch_size", "rollout.prompts_per_step"},
    {"rollout_batch_size", "rollout.prompts_per_step"},
    {"max_completion_length", "rollout.max_tokens"},
    {"max_response_length", "rollout.max_tokens"},
    {"generate_max_len", "rollout.max_tokens"},
    {"max_new_tokens", "rollout.max_tokens"},
    {"max_prompt_length", "data.max_prompt_tokens"},
    {"prompt_max_len", "data.max_prompt_tokens"},
    {"max_num_seqs", "rollout.max_batch"},
    {"max_num_batched_tokens", "rollout.prefill_chunk_tokens"},
    {"train_files", "data.train"},
    {"train_dataset", "data.train"},
    {"prompt_data", "data.train"},
    {"val_files", "data.eval"},
    {"eval_dataset", "data.eval"},
    {"reward_funcs", "reward.kind"},
    {"reward_weights", "reward.weights"},
    {"adv_estimator", "algorithm.advantage"},
    {"advantage_estimator", "algorithm.advantage"},
    {"loss_mode", "algorithm.loss"},
    {"policy_loss_type", "algorithm.loss"},
    {"epsilon", "algorithm.clip_ratio_low"},
    {"epsilon_high", "algorithm.clip_ratio_high"},
    {"eps_clip", "algorithm.clip_ratio_low"},
    {"clip_ratio", "algorithm.clip_ratio_low"},
    {"dual_clip", "algorithm.clip_ratio_c"},
    {"loss_agg_mode", "algorithm.aggregation"},
    {"loss_type", "algorithm.aggregation"},
    {"beta", "algorithm.kl_loss_coef"},
    {"init_kl_coef", "algorithm.kl_loss_coef"},
    {"kl_coef", "algorithm.kl_loss_coef"},
    {"kl_loss_type", "algorithm.kl_estimator"},
    {"learning_rate", "learner.lr"},
    {"actor_learning_rate", "learner.lr"},
    {"lr_scheduler_type", "learner.schedule"},
    {"lr_scheduler", "learner.schedule"},
    {"lr_warmup_steps", "learner.warmup_steps"},
    {"grad_clip", "learner.max_grad_norm"},
    {"max_norm", "learner.max_grad_norm"},
    {"ppo_mini_batch_size", "learner.mini_batches"},
    {"ppo_max_token_len_per_gpu", "learner.micro_batch_tokens"},
    {"per_device_train_batch_size", "learner.micro_batch_tokens"},
    {"gradient_checkpointing", "learner.recompute"},
    {"enable_gradient_checkpointing", "learner.recompute"},
    {"output_dir", "run.dir"},
    {"default_local_dir", "run.dir"},
    {"save_path", "run.dir"},
    {"max_steps", "run.steps"},
    {"total_training_steps", "run.steps"},
    {"save_freq", "run.save_every"},
    {"save_steps", "run.save_every"},
    {"test_freq", "eval.every"},
    {"eval_steps", "eval.every"},
    {"pretrain", "model.path"},
    {"model_name_or_path", "model.path"},
};

}  // namespace

absl::Span<const ForeignName> ForeignNames() { return kForeignNames; }

const char* FindForeignName(std::string_view key) {
  for (const ForeignName& name : kForeignNames) {
    if (key == name.key) return name.path;
  }
  return nullptr;
}

}  // namespace lockstep::job
