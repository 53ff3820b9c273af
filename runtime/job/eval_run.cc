#include "runtime/job/eval_run.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "model/packed_model.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/job/eval_report.h"
#include "runtime/job/scored_sampler.h"
#include "runtime/job/stop_signal.h"

namespace lockstep::job {
namespace {

// The loaded weights, packed and published, so that every sampler of the job reads them.
absl::StatusOr<WeightVersion> PublishLoaded(JobParts& parts) {
  ASSIGN_OR_RETURN(const transport::WeightPublisher::Slot slot,
                   parts.publisher->BeginWrite(transport::After(absl::Seconds(60))));
  const DType dtype = parts.options.model.dtype;
  const model::PackedLayout layout(parts.model.config, dtype, parts.engine.matmul);
  uint8_t* packed = slot.bytes.data();
  if (dtype == DType::kF32) {
    model::PackModel<float>(*parts.pool, parts.model.config, parts.model.parameters, layout, packed);
  } else {
    model::PackModel<Bf16>(*parts.pool, parts.model.config, parts.model.parameters, layout, packed);
  }
  const WeightVersion version{.number = 0, .hash = parts.model.parameters.Hash()};
  parts.publisher->Publish(version);
  return version;
}

absl::StatusOr<Json> Evaluate(JobParts& parts) {
  const RunOptions& options = parts.options;
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const WeightVersion version, PublishLoaded(parts));
  ScoredSampler sampler(*parts.generator, *parts.data->reward, *parts.data->text.tokenizer, options.run.seed);
  ASSIGN_OR_RETURN(const EvalReport report, parts.data->evaluator->Run(sampler, version, StopRequested));
  LogInfo(absl::StrCat("evaluation: ", ToText(report)));
  Json object = {{"model", options.model.path}, {"weight_hash", HashToHex(version.hash)}};
  object.update(ToJson(report));
  object["temperature"] = options.eval.temperature;
  object["seed"] = options.run.seed;
  object["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return object;
}

}  // namespace

absl::Status EvaluateModel(JobParts parts, std::ostream& out) {
  const absl::StatusOr<Json> report = Evaluate(parts);
  const absl::Status finished = parts.generator->Finish();
  if (!report.ok()) return report.status();
  out << DumpJson(*report) << "\n";
  return finished;
}

}  // namespace lockstep::job
