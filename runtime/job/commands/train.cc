// `train` and `eval`: one process per rank, and the child of a rollout rank.
#include <ostream>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/job/commands.h"
#include "runtime/job/eval_run.h"
#include "runtime/job/rollout_worker.h"
#include "runtime/job/run_ranks.h"
#include "runtime/job/stop_signal.h"
#include "runtime/job/trainer.h"

namespace lockstep::job {

absl::Status TrainCommand(const ConfigArgs& args) { return RunRanks(args, Needs::kTrain, Train); }

absl::Status EvalCommand(const ConfigArgs& args, std::ostream& out) {
  return RunRanks(args, Needs::kEval, [&out](JobParts parts) { return EvaluateModel(std::move(parts), out); });
}

absl::Status RolloutWorkerCommand(const std::vector<std::string>& arguments) {
  InstallStopSignals();
  ASSIGN_OR_RETURN(const RolloutWorkerArgs args, ParseRolloutWorkerArguments(arguments));
  ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, text::Tokenizer::Load(args.model_path));
  return RunRolloutWorker(args, StopWatchers(*tokenizer));
}

}  // namespace lockstep::job
