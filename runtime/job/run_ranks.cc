#include "runtime/job/run_ranks.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "model/kernel_signature.h"
#include "model/packed_model.h"
#include "model/product_check.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_pool.h"
#include "runtime/job/job_plan.h"
#include "runtime/job/remote_generator.h"
#include "runtime/job/rollout_worker.h"
#include "runtime/job/stop_signal.h"
#include "runtime/job/supervisor.h"
#include "runtime/process/child_process.h"
#include "transport/mpi_collective.h"
#include "transport/private_dir.h"

namespace lockstep::job {
namespace {

using transport::After;

// Other ranks wait while the learner reads the data: every row is encoded once.
constexpr absl::Duration kOpenDeadline = absl::Minutes(30);

// Where the ranks of a node meet and what multiplies; the learner decides and tells the others.
struct Meeting {
  std::string bus_endpoint, weights_socket, matmul;
};

absl::Status RunLearner(const JobPlan& plan, std::unique_ptr<JobData> data, const LearnerWork& work,
                        const std::string& weights_socket, std::unique_ptr<transport::Router> router,
                        ThreadPool& pool) {
  JobParts parts;
  parts.options = plan.options;
  parts.engine = plan.engine;
  parts.data = std::move(data);
  ASSIGN_OR_RETURN(parts.model, model::LoadModel(plan.options.model.path));
  parts.pool = &pool;
  const DType dtype = plan.options.model.dtype;
  const model::PackedLayout layout(parts.model.config, dtype, plan.engine.matmul);
  transport::WeightChannelOptions channel;
  channel.slot_bytes = static_cast<size_t>(layout.num_bytes());
  channel.socket_path = weights_socket;
  ASSIGN_OR_RETURN(parts.publisher, transport::WeightPublisher::Create(channel));
  if (router != nullptr) {
    RemoteGeneratorOptions remote;
    remote.num_workers = static_cast<int>(plan.ranks.rollout_ranks.size());
    remote.kernel_signature = model::KernelSignature(plan.engine.matmul);
    parts.generator = MakeRemoteGenerator(std::move(router), remote);
  } else {
    ASSIGN_OR_RETURN(
        std::unique_ptr<rollout::Engine> engine,
        rollout::Engine::Make(parts.model.config, dtype, plan.engine, pool, StopWatchers(*parts.data->text.tokenizer)));
    parts.generator = MakeLocalGenerator(std::move(engine), parts.publisher->LocalReader());
  }
  return work(std::move(parts));
}

absl::Status RunRolloutRank(const JobPlan& plan, int rank, int threads, const Meeting& meeting) {
  RolloutWorkerArgs worker;
  worker.worker_id = rank;
  worker.bus_endpoint = meeting.bus_endpoint;
  worker.weights_socket = meeting.weights_socket;
  worker.model_path = plan.options.model.path;
  worker.dtype = plan.options.model.dtype;
  worker.threads = threads;
  worker.engine = plan.engine;
  worker.engine.matmul = meeting.matmul == model::MatMulBackendName(model::MatMulBackend::kOneDnn)
                             ? model::MatMulBackend::kOneDnn
                             : model::MatMulBackend::kOwn;
  SupervisorOptions supervisor;
  supervisor.child_argv = {process::SelfShim().front(), "rollout-worker"};
  for (const std::string& argument : ToArguments(worker)) supervisor.child_argv.push_back(argument);
  return Supervise(supervisor);
}

absl::Status RunRank(JobPlan& plan, std::unique_ptr<JobData> data, const LearnerWork& work,
                     transport::MpiSession& session) {
  const int rank = session.place().rank;
  const Role role = plan.ranks.roles[rank];
  SetLogRole(role == Role::kRollout ? absl::StrCat("rollout ", rank) : RoleName(role));
  const int threads = RankThreads(plan.options, plan.ranks, rank, NumUsableCpus());
  LogInfo(absl::StrCat("rank ", rank, " of ", session.place().world_size, ": ", RoleName(role), ", ", threads,
                       " compute threads on ", NumUsableCpus(), " CPUs"));
  if (role != Role::kRollout) {
    plan.engine.matmul = model::ChooseMatMulBackend(plan.options.compute.matmul, plan.options.model.dtype, plan.config);
  }
  if (role == Role::kColocated) {
    ThreadPool pool(threads);
    return RunLearner(plan, std::move(data), work, /*weights_socket=*/"", nullptr, pool);
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
        text = absl::StrCat((*bound)->endpoint(), "\n", dir->weights_socket(), "\n",
                            model::MatMulBackendName(plan.engine.matmul));
        router = *std::move(bound);
      }
    }
  }
  RETURN_IF_ERROR(transport::JoinStatus(session.world(), opened, After(absl::Seconds(60))));
  RETURN_IF_ERROR(transport::BroadcastText(session.world(), plan.ranks.learner_rank, text, After(absl::Seconds(60))));
  if (role == Role::kLearner) {
    ThreadPool pool(threads);
    return RunLearner(plan, std::move(data), work, dir->weights_socket(), std::move(router), pool);
  }
  const std::vector<std::string> parts = absl::StrSplit(text, '\n');
  if (parts.size() != 3) return absl::InternalError("the learner did not say where to meet");
  return RunRolloutRank(plan, rank, threads, {parts[0], parts[1], parts[2]});
}

}  // namespace

absl::Status RunRanks(const ConfigArgs& args, Needs needs, const LearnerWork& work) {
  InstallStopSignals();
  ASSIGN_OR_RETURN(const std::unique_ptr<transport::MpiSession> session, transport::MpiSession::Start());
  const int rank = session->place().rank;
  // All ranks read the same configuration and the learner the data: they agree, or the first error is everybody's.
  absl::StatusOr<JobPlan> plan = MakeJobPlan(args, session->place().world_size);
  std::unique_ptr<JobData> data;
  absl::Status ready = plan.status();
  if (plan.ok() && rank == plan->ranks.learner_rank) {
    SetLogLevel(plan->options.log.level);
    absl::StatusOr<std::unique_ptr<JobData>> opened = OpenJobData(plan->options, plan->config, needs == Needs::kTrain);
    ready = opened.status();
    if (opened.ok()) data = *std::move(opened);
  }
  const absl::Status joined = transport::JoinStatus(session->world(), ready, After(kOpenDeadline));
  if (!joined.ok() && rank > 0) return absl::Status(joined.code(), "");  // one line for all, not one a rank
  if (!joined.ok()) return ready.ok() ? joined : ready;                  // in the words of `plan`
  SetLogLevel(plan->options.log.level);
  const absl::Status status = RunRank(*plan, std::move(data), work, *session);
  if (!status.ok()) {
    if (session->place().world_size == 1) return status;
    LogError(Message(status));
    session->Abort(ExitCode(status));  // the others would wait for this rank
  }
  return session->world().Wait(session->world().Barrier(), After(absl::Seconds(120)));
}

}  // namespace lockstep::job
