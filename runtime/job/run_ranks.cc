#include "runtime/job/run_ranks.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "model/kernel_signature.h"
#include "model/packed_model.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_pool.h"
#include "runtime/job/plan.h"
#include "runtime/job/remote_generator.h"
#include "runtime/job/rollout_worker.h"
#include "runtime/job/stop_signal.h"
#include "runtime/job/supervisor.h"
#include "runtime/job/yaml_reader.h"
#include "runtime/process/child_process.h"
#include "transport/mpi_collective.h"
#include "transport/private_dir.h"

namespace lockstep::job {
namespace {

using transport::After;

// Where the ranks of a node meet; the learner makes it and tells the others.
struct Meeting {
  std::string bus_endpoint, weights_socket;
};

// What every rank needs to know before anything large is allocated. Errors of any rank reach all (JoinStatus).
struct RunPlan {
  RunOptions options;
  RankPlan ranks;
  model::ModelConfig config;
};

absl::StatusOr<RunPlan> MakePlan(const ConfigArgs& args, int num_ranks) {
  ASSIGN_OR_RETURN(Config config, ReadConfig(args.path, args.overrides));
  RunPlan plan;
  plan.options = std::move(config.options);
  RETURN_IF_ERROR(plan.options.Validate());
  ASSIGN_OR_RETURN(plan.ranks, PlanRanks(plan.options, num_ranks));
  ASSIGN_OR_RETURN(plan.config, model::LoadConfig(plan.options.model.path));
  return plan;
}

absl::Status RunLearner(const RunPlan& plan, const LearnerWork& work, const std::string& weights_socket,
                        std::unique_ptr<transport::Router> router, ThreadPool& pool) {
  JobParts parts;
  parts.options = plan.options;
  ASSIGN_OR_RETURN(parts.model, model::LoadModel(plan.options.model.path));
  ASSIGN_OR_RETURN(parts.text, LoadTextModel(plan.options.model.path));
  RETURN_IF_ERROR(CheckVocabulary(*parts.text.tokenizer, parts.model.config));
  parts.pool = &pool;
  const DType dtype = plan.options.model.dtype;
  const model::PackedLayout layout(parts.model.config, dtype);
  transport::WeightChannelOptions channel;
  channel.slot_bytes = static_cast<size_t>(layout.num_bytes());
  channel.socket_path = weights_socket;
  ASSIGN_OR_RETURN(parts.publisher, transport::WeightPublisher::Create(channel));
  if (router != nullptr) {
    RemoteGeneratorOptions remote;
    remote.num_workers = static_cast<int>(plan.ranks.rollout_ranks.size());
    remote.kernel_signature = model::KernelSignature();
    parts.generator = MakeRemoteGenerator(std::move(router), remote);
  } else {
    ASSIGN_OR_RETURN(std::unique_ptr<rollout::Engine> engine,
                     rollout::Engine::Make(parts.model.config, dtype, EngineOptionsOf(plan.options, parts.model.config),
                                           pool, StopWatchers(*parts.text.tokenizer)));
    parts.generator = MakeLocalGenerator(std::move(engine), parts.publisher->LocalReader());
  }
  return work(std::move(parts));
}

absl::Status RunRolloutRank(const RunPlan& plan, int rank, int threads, const Meeting& meeting) {
  RolloutWorkerArgs worker;
  worker.worker_id = rank;
  worker.bus_endpoint = meeting.bus_endpoint;
  worker.weights_socket = meeting.weights_socket;
  worker.model_path = plan.options.model.path;
  worker.dtype = plan.options.model.dtype;
  worker.threads = threads;
  worker.engine = EngineOptionsOf(plan.options, plan.config);
  SupervisorOptions supervisor;
  supervisor.child_argv = {process::SelfShim().front(), "rollout-worker"};
  for (const std::string& argument : ToArguments(worker)) supervisor.child_argv.push_back(argument);
  return Supervise(supervisor);
}

absl::Status RunRank(const RunPlan& plan, const LearnerWork& work, transport::MpiSession& session) {
  const int rank = session.place().rank;
  const Role role = plan.ranks.roles[rank];
  SetLogRole(role == Role::kRollout ? absl::StrCat("rollout ", rank) : RoleName(role));
  const int threads = RankThreads(plan.options, plan.ranks, rank, NumUsableCpus());
  LogInfo(absl::StrCat("rank ", rank, " of ", session.place().world_size, ": ", RoleName(role), ", ", threads,
                       " compute threads on ", NumUsableCpus(), " CPUs"));
  if (role == Role::kColocated) {
    ThreadPool pool(threads);
    return RunLearner(plan, work, /*weights_socket=*/"", nullptr, pool);
  }
  // The learner opens the meeting place and tells the others where it is.
  absl::StatusOr<transport::PrivateDir> dir = absl::InternalError("");
  std::unique_ptr<transport::Router> router;
  std::string text;
  absl::Status opened;
  if (role == Role::kLearner) {
    dir = transport::PrivateDir::Create();
    opened = dir.status();
    if (opened.ok()) {
      absl::StatusOr<std::unique_ptr<transport::Router>> bound = transport::Router::Bind(dir->bus_endpoint());
      opened = bound.status();
      if (bound.ok()) {
        text = absl::StrCat((*bound)->endpoint(), "\n", dir->weights_socket());
        router = *std::move(bound);
      }
    }
  }
  RETURN_IF_ERROR(transport::JoinStatus(session.world(), opened, After(absl::Seconds(60))));
  RETURN_IF_ERROR(transport::BroadcastText(session.world(), plan.ranks.learner_rank, text, After(absl::Seconds(60))));
  if (role == Role::kLearner) {
    ThreadPool pool(threads);
    return RunLearner(plan, work, dir->weights_socket(), std::move(router), pool);
  }
  const std::vector<std::string> parts = absl::StrSplit(text, '\n');
  if (parts.size() != 2) return absl::InternalError("the learner did not say where to meet");
  return RunRolloutRank(plan, rank, threads, {parts[0], parts[1]});
}

}  // namespace

absl::Status RunRanks(const ConfigArgs& args, const LearnerWork& work) {
  InstallStopSignals();
  ASSIGN_OR_RETURN(const std::unique_ptr<transport::MpiSession> session, transport::MpiSession::Start());
  absl::StatusOr<RunPlan> plan = MakePlan(args, session->place().world_size);
  // All ranks read the same files: they agree, or the first error is everybody's.
  RETURN_IF_ERROR(transport::JoinStatus(session->world(), plan.status(), After(absl::Seconds(60))));
  SetLogLevel(plan->options.log.level);
  const absl::Status status = RunRank(*plan, work, *session);
  if (!status.ok()) {
    if (session->place().world_size == 1) return status;
    LogError(Message(status));
    session->Abort(ExitCode(status));  // the others would wait for this rank
  }
  return session->world().Wait(session->world().Barrier(), After(absl::Seconds(120)));
}

}  // namespace lockstep::job
