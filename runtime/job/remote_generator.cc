#include "runtime/job/remote_generator.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

namespace lockstep::job {
namespace {

using rollout::GenerationRequest;
using rollout::GenerationResult;
using transport::After;
using transport::Deadline;
using transport::WorkerId;

constexpr absl::Duration kSendDeadline = absl::Seconds(30);

struct WorkerState {
  int64_t pid = 0;
  Deadline last_heard{};
  std::map<int64_t, size_t> in_flight;  // request id -> index of the request
  int64_t outstanding_tokens = 0;
};

class RemoteGenerator final : public Generator {
 public:
  RemoteGenerator(std::unique_ptr<transport::Router> router, const RemoteGeneratorOptions& options)
      : router_(std::move(router)), options_(options), start_(After(absl::ZeroDuration())) {}

  absl::StatusOr<std::vector<GenerationResult>> Generate(const std::vector<GenerationRequest>& requests,
                                                         const WeightVersion& version,
                                                         const std::function<bool()>& stop) override {
    RETURN_IF_ERROR(deferred_);
    requests_ = &requests;
    version_ = version;
    results_.clear();
    received_.clear();
    waiting_.clear();
    missing_ = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      waiting_.push_back(i);
      missing_ += requests[i].num_samples;
    }
    for (auto& [id, worker] : workers_) worker.last_heard = After(absl::ZeroDuration());
    while (missing_ > 0) {
      if (stop()) {
        Broadcast(transport::CancelRequests{});
        for (auto& [id, worker] : workers_) Forget(worker);
        return absl::CancelledError("stopped while sampling");
      }
      RETURN_IF_ERROR(Dispatch());
      RETURN_IF_ERROR(HearOne(After(absl::Milliseconds(200))).status());
      RETURN_IF_ERROR(CheckSilence());
    }
    RETURN_IF_ERROR(OrderResults(requests, results_));
    return std::move(results_);
  }

  bool StopTold() override {
    // What is wrong with a worker is the next Generate's to report.
    for (bool heard = true; heard && deferred_.ok();) {
      const absl::StatusOr<bool> one = HearOne(After(absl::ZeroDuration()));
      heard = one.ok() && *one;
      deferred_ = one.status();
    }
    return stop_told_;
  }

  std::map<int64_t, int64_t> WorkerPids() const override {
    std::map<int64_t, int64_t> pids;
    for (const auto& [id, worker] : workers_) pids[id] = worker.pid;
    return pids;
  }

  absl::Status Finish() override {
    Broadcast(transport::Stop{"the run is over"});
    router_->Close(absl::Seconds(5));
    return absl::OkStatus();
  }

 private:
  static int64_t Cost(const GenerationRequest& request) {
    return static_cast<int64_t>(request.prompt_ids.size()) + int64_t{request.num_samples} * request.params.max_tokens;
  }

  void Broadcast(const transport::Message& message) {
    for (const auto& [id, worker] : workers_) {
      const absl::Status status = router_->Send(id, message, After(kSendDeadline));
      if (!status.ok()) LogWarning(absl::StrCat("worker ", id, " cannot be told: ", status.message()));
    }
  }

  void Forget(WorkerState& worker) {
    worker.in_flight.clear();
    worker.outstanding_tokens = 0;
  }

  // Hands waiting prompts to the least loaded workers, once all of them are there: who samples is no matter for the
  // bits, but an early worker should not get everything.
  absl::Status Dispatch() {
    if (static_cast<int>(workers_.size()) < options_.num_workers) return absl::OkStatus();
    while (!waiting_.empty()) {
      const size_t index = waiting_.front();
      waiting_.pop_front();
      auto best = std::min_element(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) {
        return a.second.outstanding_tokens < b.second.outstanding_tokens;
      });
      const GenerationRequest& request = (*requests_)[index];
      transport::GenerateRequest message;
      message.request_id = request.request_id;
      message.ordinal = request.ordinal;
      message.prompt_ids = request.prompt_ids;
      message.num_samples = request.num_samples;
      message.first_sample_idx = request.first_sample;
      message.params = request.params;
      message.seed = request.key.seed;
      message.purpose = request.key.purpose;
      message.turn = request.turn;
      message.weight_version = version_;
      RETURN_IF_ERROR(router_->Send(best->first, message, After(kSendDeadline)));
      best->second.in_flight[request.request_id] = index;
      best->second.outstanding_tokens += Cost(request);
    }
    return absl::OkStatus();
  }

  // Takes one message, if there is one by the deadline; false if there was none.
  absl::StatusOr<bool> HearOne(Deadline deadline) {
    absl::StatusOr<std::optional<transport::Received>> received = router_->Receive(deadline);
    if (!received.ok()) {
      LogWarning(absl::StrCat("a message was refused: ", received.status().message()));
      return true;
    }
    if (!received->has_value()) return false;
    const WorkerId id = (*received)->worker_id;
    transport::Message& message = (*received)->message;
    if (auto it = workers_.find(id); it != workers_.end()) it->second.last_heard = After(absl::ZeroDuration());
    if (const auto* hello = std::get_if<transport::Hello>(&message)) RETURN_IF_ERROR(Welcome(id, *hello));
    if (auto* result = std::get_if<transport::GenerateResult>(&message)) RETURN_IF_ERROR(Take(id, std::move(*result)));
    if (const auto* stop = std::get_if<transport::Stop>(&message)) {
      if (!stop_told_) LogInfo(stop->reason);
      stop_told_ = true;
    }
    if (const auto* report = std::get_if<transport::ErrorReport>(&message)) return transport::StatusOf(*report);
    return true;
  }

  absl::Status Welcome(WorkerId id, const transport::Hello& hello) {
    if (hello.kernel_signature != options_.kernel_signature) {
      return absl::FailedPreconditionError(
          absl::StrCat("rollout worker ", id, " computes with ", hello.kernel_signature, " and the learner with ",
                       options_.kernel_signature, ": their bits would differ; run all ranks on machines of one kind"));
    }
    WorkerState& worker = workers_[id];
    if (worker.pid != 0) {
      LogWarning(absl::StrCat("rollout worker ", id, " was restarted; its ", worker.in_flight.size(),
                              " prompts are sampled again"));
      for (const auto& [request_id, index] : worker.in_flight) waiting_.push_back(index);
      Forget(worker);
    }
    worker.pid = hello.pid;
    worker.last_heard = After(absl::ZeroDuration());
    return absl::OkStatus();
  }

  absl::Status Take(WorkerId id, transport::GenerateResult message) {
    WorkerState& worker = workers_[id];
    const auto it = worker.in_flight.find(message.request_id);
    if (it == worker.in_flight.end())
      return absl::OkStatus();  // of a cancelled call, or of the worker before the restart
    const GenerationRequest& request = (*requests_)[it->second];
    if (!message.error.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rollout worker ", id, " could not sample prompt ", request.ordinal, ": ", message.error));
    }
    const bool known =
        message.sample_idx >= request.first_sample && message.sample_idx < request.first_sample + request.num_samples;
    if (!known) return absl::InternalError(absl::StrCat("rollout worker ", id, " sent sample ", message.sample_idx));
    if (!received_.insert({message.request_id, message.sample_idx}).second) return absl::OkStatus();
    GenerationResult result;
    result.request_id = message.request_id;
    result.run.sample_id = message.sample_idx;
    result.run.params = request.params;
    result.run.tokens = std::move(message.tokens);
    result.run.kept = std::move(message.kept);
    result.run.finish_reason = message.finish_reason;
    results_.push_back(std::move(result));
    --missing_;
    bool complete = true;
    for (int32_t s = 0; s < request.num_samples; ++s) {
      complete = complete && received_.count({message.request_id, request.first_sample + s}) > 0;
    }
    if (complete) {
      worker.outstanding_tokens -= Cost(request);
      worker.in_flight.erase(it);
    }
    return absl::OkStatus();
  }

  absl::Status CheckSilence() {
    const Deadline now = After(absl::ZeroDuration());
    const auto limit = absl::ToChronoNanoseconds(options_.worker_deadline);
    for (const auto& [id, worker] : workers_) {
      if (now - worker.last_heard > limit) {
        return absl::DeadlineExceededError(absl::StrCat("rollout worker ", id, " (process ", worker.pid,
                                                        ") has been silent for ",
                                                        absl::FormatDuration(options_.worker_deadline)));
      }
    }
    if (static_cast<int>(workers_.size()) < options_.num_workers && now - start_ > limit) {
      return absl::DeadlineExceededError(absl::StrCat(options_.num_workers - static_cast<int>(workers_.size()), " of ",
                                                      options_.num_workers, " rollout workers have not come up"));
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<transport::Router> router_;
  const RemoteGeneratorOptions options_;
  const Deadline start_;
  std::map<WorkerId, WorkerState> workers_;
  bool stop_told_ = false;
  absl::Status deferred_;  // an error that came between two calls
  // Of the call in hand.
  const std::vector<GenerationRequest>* requests_ = nullptr;
  WeightVersion version_;
  std::deque<size_t> waiting_;
  std::set<std::pair<int64_t, int32_t>> received_;
  std::vector<GenerationResult> results_;
  int64_t missing_ = 0;
};

}  // namespace

std::unique_ptr<Generator> MakeRemoteGenerator(std::unique_ptr<transport::Router> router,
                                               const RemoteGeneratorOptions& options) {
  return std::make_unique<RemoteGenerator>(std::move(router), options);
}

}  // namespace lockstep::job
