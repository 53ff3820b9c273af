#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_pool.h"
#include "runtime/job/commands.h"
#include "runtime/job/job_plan.h"

namespace lockstep::job {
namespace {

std::string BytesText(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? absl::StrFormat("%.1f MiB", mib) : absl::StrFormat("%.2f GiB", mib / 1024);
}

std::string FlopsText(double flops) {
  return flops < 1e12 ? absl::StrFormat("%.1f GFLOP", flops / 1e9) : absl::StrFormat("%.2f TFLOP", flops / 1e12);
}

const char* HolderName(Footprint::Holder holder) {
  switch (holder) {
    case Footprint::Holder::kLearner:
      return "learner";
    case Footprint::Holder::kRollout:
      return "each rollout rank";
    case Footprint::Holder::kNode:
      return "shared by all ranks";
  }
  return "?";
}

int64_t OwnBytes(const Footprint& footprint, Role role) {
  int64_t bytes = 0;
  if (role != Role::kRollout) bytes += footprint.BytesOf(Footprint::Holder::kLearner);
  if (role != Role::kLearner) bytes += footprint.BytesOf(Footprint::Holder::kRollout);
  return bytes;
}

void PrintRanks(const RunOptions& options, const RankPlan& plan, const Footprint& footprint, std::ostream& out) {
  const int cpus = NumUsableCpus();
  out << absl::StrFormat("ranks   %d, on %d CPUs\n", plan.num_ranks(), cpus);
  out << "        rank  role       threads  memory of its own\n";
  int64_t total = footprint.BytesOf(Footprint::Holder::kNode);
  for (int rank = 0; rank < plan.num_ranks(); ++rank) {
    const int64_t bytes = OwnBytes(footprint, plan.roles[rank]);
    total += bytes;
    out << absl::StrFormat("        %-4d  %-9s  %-7d  %s\n", rank, RoleName(plan.roles[rank]),
                           RankThreads(options, plan, rank, cpus), BytesText(bytes));
  }
  out << "        all ranks on one node: " << BytesText(total) << "\n";
}

void PrintFootprint(const RunOptions& options, const Footprint& footprint, std::ostream& out) {
  out << "memory\n";
  for (const Footprint::Memory& piece : footprint.memory) {
    out << absl::StrFormat("        %-32s %12s  %s\n", piece.what, BytesText(piece.bytes), HolderName(piece.holder));
  }
  const SampleLimits& limits = footprint.limits;
  out << absl::StrFormat("        the cache has %d blocks of 64 positions\n", footprint.kv_blocks);
  out << absl::StrFormat("sample  at most %d tokens: prompts of up to %d%s, completions of up to %d\n",
                         limits.context_tokens(), limits.prompt_tokens,
                         options.data.max_prompt_tokens > 0 ? "" : " (the default of data.max_prompt_tokens)",
                         limits.completion_tokens);
  out << absl::StrFormat("step    %d prompts x %d samples\n", options.rollout.prompts_per_step, options.rollout.n);
  out << absl::StrFormat("        at most %s to sample and %s to train, with prompts of %d tokens\n",
                         FlopsText(footprint.sample_flops), FlopsText(footprint.train_flops), footprint.prompt_tokens);
  out << absl::StrFormat("run     %d steps of %d optimizer step%s\n", options.run.steps, options.learner.mini_batches,
                         options.learner.mini_batches == 1 ? "" : "s");
}

}  // namespace

absl::Status PlanCommand(const ConfigArgs& args, int num_ranks, std::ostream& out) {
  ASSIGN_OR_RETURN(const JobPlan plan, MakeJobPlan(args, num_ranks));
  const RunOptions& options = plan.options;
  const Footprint& footprint = plan.footprint;
  out << absl::StrFormat("model   %s: %s, %d layers, %.1f M parameters, context %d, computed in %s\n",
                         options.model.path, model::ArchitectureName(plan.config.architecture), plan.config.num_layers,
                         static_cast<double>(footprint.num_parameters) / 1e6, plan.config.max_position_embeddings,
                         DTypeName(options.model.dtype));
  PrintRanks(options, plan.ranks, footprint, out);
  PrintFootprint(options, footprint, out);
  return absl::OkStatus();
}

}  // namespace lockstep::job
