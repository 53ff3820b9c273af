#include "runtime/job/rollout_worker.h"

#include <unistd.h>

#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "model/kernel_signature.h"
#include "model/load.h"
#include "model/product_check.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/job/stop_signal.h"
#include "transport/message_bus.h"
#include "transport/weight_channel.h"

namespace lockstep::job {
namespace {

using transport::After;
using transport::GenerateRequest;
using transport::GenerateResult;
using transport::Message;

constexpr absl::Duration kSendDeadline = absl::Seconds(60);
constexpr absl::Duration kHeartbeat = absl::Seconds(1);

class Worker {
 public:
  Worker(const RolloutWorkerArgs& args, ThreadPool& pool) : args_(args), pool_(pool) {}

  absl::Status Run(rollout::StopWatcherFactory stop_watchers) {
    ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadConfig(args_.model_path));
    ASSIGN_OR_RETURN(engine_,
                     rollout::Engine::Make(config, args_.dtype, args_.engine, pool_, std::move(stop_watchers)));
    ASSIGN_OR_RETURN(dealer_, transport::Dealer::Connect(args_.bus_endpoint, args_.worker_id));
    ASSIGN_OR_RETURN(weights_, transport::WeightReader::Connect(args_.weights_socket, After(absl::Seconds(60))));
    RETURN_IF_ERROR(
        dealer_->Send(transport::Hello{args_.worker_id, getpid(), Signature(config), ""}, After(kSendDeadline)));
    while (!done_) RETURN_IF_ERROR(Turn());
    return absl::OkStatus();
  }

 private:
  // What the learner compares with its own. A worker that cannot compute as the learner does says what it could do, and
  // is refused.
  std::string Signature(const model::ModelConfig& config) const {
    const absl::Status status = model::CheckBackend(args_.engine.matmul, args_.dtype, config);
    if (status.ok()) return model::KernelSignature(args_.engine.matmul);
    LogWarning(absl::StrCat("oneDNN multiplies at the learner and cannot here: ", lockstep::Message(status)));
    return model::KernelSignature(model::MatMulBackend::kOwn);
  }

  // One round: messages, a step of the engine, results, heartbeat.
  absl::Status Turn() {
    RETURN_IF_ERROR(Receive());
    if (done_) return absl::OkStatus();
    std::vector<rollout::GenerationResult> finished;
    if (engine_->busy()) engine_->Step(&finished);
    for (rollout::GenerationResult& result : finished) RETURN_IF_ERROR(Answer(std::move(result)));
    if (std::chrono::steady_clock::now() >= next_heartbeat_) {
      next_heartbeat_ = After(kHeartbeat);
      RETURN_IF_ERROR(
          dealer_->Send(transport::Heartbeat{args_.worker_id, static_cast<int64_t>(requests_.size()), version_.number},
                        After(kSendDeadline)));
      if (!weights_->PublisherAlive()) return absl::UnavailableError("the learner has gone");
    }
    if (StopRequested() && !stop_told_) {
      stop_told_ = true;
      RETURN_IF_ERROR(dealer_->Send(transport::Stop{absl::StrCat("a stop signal at rollout worker ", args_.worker_id)},
                                    After(kSendDeadline)));
    }
    return absl::OkStatus();
  }

  absl::Status Receive() {
    while (!done_) {
      const bool busy = engine_->busy();
      ASSIGN_OR_RETURN(std::optional<Message> message,
                       dealer_->Receive(busy ? After(absl::ZeroDuration()) : After(absl::Milliseconds(100))));
      if (!message.has_value()) return absl::OkStatus();
      if (auto* request = std::get_if<GenerateRequest>(&*message)) RETURN_IF_ERROR(Start(std::move(*request)));
      if (std::holds_alternative<transport::CancelRequests>(*message)) {
        engine_->Abort();
        requests_.clear();
      }
      if (std::holds_alternative<transport::Stop>(*message)) done_ = true;
    }
    return absl::OkStatus();
  }

  absl::Status Start(GenerateRequest request) {
    if (request.weight_version != version_) {
      if (engine_->busy()) return absl::InternalError("asked for other weights while samples are under way");
      ASSIGN_OR_RETURN(lease_, weights_->WaitFor(request.weight_version.number, After(absl::Seconds(60))));
      if (lease_.version() != request.weight_version) {
        return absl::InternalError(absl::StrCat("weights ", lease_.version().number, " are published, ",
                                                request.weight_version.number, " were asked for"));
      }
      version_ = lease_.version();
      engine_->SetWeights(lease_.bytes().data(), version_.number);
    }
    rollout::GenerationRequest work;
    work.request_id = request.request_id;
    work.prompt_ids = request.prompt_ids;
    work.num_samples = request.num_samples;
    work.first_sample = request.first_sample_idx;
    work.params = request.params;
    work.key = {request.seed, request.purpose};
    work.ordinal = request.ordinal;
    work.turn = request.turn;
    const absl::Status status = engine_->Submit(std::move(work));
    if (!status.ok()) {
      GenerateResult refused;
      refused.request_id = request.request_id;
      refused.ordinal = request.ordinal;
      refused.sample_idx = request.first_sample_idx;
      refused.error = lockstep::Message(status);
      return dealer_->Send(refused, After(kSendDeadline));
    }
    requests_[request.request_id] = request.ordinal;
    return absl::OkStatus();
  }

  absl::Status Answer(rollout::GenerationResult result) {
    GenerateResult answer;
    answer.request_id = result.request_id;
    answer.ordinal = requests_[result.request_id];
    answer.sample_idx = result.run.sample_id;
    answer.tokens = std::move(result.run.tokens);
    answer.kept = std::move(result.run.kept);
    answer.finish_reason = result.run.finish_reason;
    return dealer_->Send(answer, After(kSendDeadline));
  }

  const RolloutWorkerArgs& args_;
  ThreadPool& pool_;
  std::unique_ptr<rollout::Engine> engine_;
  std::unique_ptr<transport::Dealer> dealer_;
  std::unique_ptr<transport::WeightReader> weights_;
  transport::WeightLease lease_;
  WeightVersion version_{.number = -1, .hash = 0};
  std::map<int64_t, int64_t> requests_;  // request id -> ordinal
  transport::Deadline next_heartbeat_{};
  bool done_ = false;
  bool stop_told_ = false;
};

}  // namespace

std::vector<std::string> ToArguments(const RolloutWorkerArgs& args) {
  return {absl::StrCat(args.worker_id),
          args.bus_endpoint,
          args.weights_socket,
          args.model_path,
          DTypeName(args.dtype),
          absl::StrCat(args.threads),
          absl::StrCat(args.engine.kv_blocks),
          absl::StrCat(args.engine.max_batch),
          absl::StrCat(args.engine.prefill_tokens),
          absl::StrCat(args.engine.max_context),
          model::MatMulBackendName(args.engine.matmul)};
}

absl::StatusOr<RolloutWorkerArgs> ParseRolloutWorkerArguments(const std::vector<std::string>& arguments) {
  RolloutWorkerArgs args;
  const bool good = arguments.size() == 11 && absl::SimpleAtoi(arguments[0], &args.worker_id) &&
                    absl::SimpleAtoi(arguments[5], &args.threads) &&
                    absl::SimpleAtoi(arguments[6], &args.engine.kv_blocks) &&
                    absl::SimpleAtoi(arguments[7], &args.engine.max_batch) &&
                    absl::SimpleAtoi(arguments[8], &args.engine.prefill_tokens) &&
                    absl::SimpleAtoi(arguments[9], &args.engine.max_context) && args.threads >= 1;
  if (!good) return absl::InvalidArgumentError("rollout-worker is started by a rollout rank, not by hand");
  args.bus_endpoint = arguments[1];
  args.weights_socket = arguments[2];
  args.model_path = arguments[3];
  if (arguments[10] == model::MatMulBackendName(model::MatMulBackend::kOneDnn)) {
    args.engine.matmul = model::MatMulBackend::kOneDnn;
  }
  args.dtype = arguments[4] == "f32" ? DType::kF32 : DType::kBf16;
  return args;
}

absl::Status RunRolloutWorker(const RolloutWorkerArgs& args, rollout::StopWatcherFactory stop_watchers) {
  SetLogRole(absl::StrCat("rollout ", args.worker_id));
  ThreadPool pool(args.threads);
  Worker worker(args, pool);
  return worker.Run(std::move(stop_watchers));
}

}  // namespace lockstep::job
