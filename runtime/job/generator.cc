#include "runtime/job/generator.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace lockstep::job {
namespace {

using rollout::GenerationRequest;
using rollout::GenerationResult;

class LocalGenerator final : public Generator {
 public:
  LocalGenerator(std::unique_ptr<rollout::Engine> engine, std::unique_ptr<transport::WeightReader> weights)
      : engine_(std::move(engine)), weights_(std::move(weights)) {}

  absl::StatusOr<std::vector<GenerationResult>> Generate(const std::vector<GenerationRequest>& requests,
                                                         const WeightVersion& version,
                                                         const std::function<bool()>& stop) override {
    ASSIGN_OR_RETURN(const transport::WeightLease lease,
                     weights_->WaitFor(version.number, transport::After(absl::Seconds(60))));
    if (lease.version() != version) {
      return absl::InternalError(
          absl::StrCat("weights ", lease.version().number, " are current, not ", version.number));
    }
    engine_->SetWeights(lease.bytes().data(), version.number);
    for (const GenerationRequest& request : requests) RETURN_IF_ERROR(engine_->Submit(request));
    std::vector<GenerationResult> results;
    while (engine_->busy()) {
      engine_->Step(&results);
      if (stop()) {
        engine_->Abort();
        return absl::CancelledError("stopped while sampling");
      }
    }
    RETURN_IF_ERROR(OrderResults(requests, results));
    return results;
  }

  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  std::unique_ptr<rollout::Engine> engine_;
  std::unique_ptr<transport::WeightReader> weights_;
};

}  // namespace

std::unique_ptr<Generator> MakeLocalGenerator(std::unique_ptr<rollout::Engine> engine,
                                              std::unique_ptr<transport::WeightReader> weights) {
  return std::make_unique<LocalGenerator>(std::move(engine), std::move(weights));
}

absl::Status OrderResults(const std::vector<GenerationRequest>& requests, std::vector<GenerationResult>& results) {
  std::map<int64_t, size_t> order;
  for (size_t i = 0; i < requests.size(); ++i) order[requests[i].request_id] = i;
  std::sort(results.begin(), results.end(), [&](const GenerationResult& a, const GenerationResult& b) {
    return std::tuple(order[a.request_id], a.run.sample_id) < std::tuple(order[b.request_id], b.run.sample_id);
  });
  size_t next = 0;
  for (const GenerationRequest& request : requests) {
    for (int32_t s = 0; s < request.num_samples; ++s, ++next) {
      if (next >= results.size() || results[next].request_id != request.request_id ||
          results[next].run.sample_id != request.first_sample + s) {
        return absl::InternalError(
            absl::StrCat("prompt ", request.ordinal, " came back without sample ", request.first_sample + s));
      }
    }
  }
  if (next != results.size()) return absl::InternalError("more samples came back than were asked for");
  return absl::OkStatus();
}

}  // namespace lockstep::job
