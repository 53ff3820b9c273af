#include <nlohmann/json.hpp>

#include "runtime/base/status.h"
#include "runtime/base/thread_pool.h"
#include "runtime/job/commands.h"
#include "runtime/job/json_stream.h"
#include "runtime/job/scorer.h"

namespace lockstep::job {

absl::Status ScoreCommand(const ModelArgs& args, std::istream& in, std::ostream& out) {
  const int threads = args.threads > 0 ? args.threads : NumUsableCpus();
  ASSIGN_OR_RETURN(const std::unique_ptr<Scorer> scorer,
                   Scorer::Load(args.model, args.dtype == "f32" ? DType::kF32 : DType::kBf16, threads, args.matmul));
  return ServeJsonLines(in, out, [&](const Json& request) -> absl::StatusOr<Json> {
    RETURN_IF_ERROR(CheckKeys(request, {"ids"}));
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, RequiredIds(request, "ids"));
    ASSIGN_OR_RETURN(const std::vector<float> logprobs, scorer->LogProbs(ids));
    Json answer = Json::object();
    answer["logprobs"] = logprobs;
    return answer;
  });
}

}  // namespace lockstep::job
