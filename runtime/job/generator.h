// Where samples come from: this process's own engine, or the rollout workers.
//
// Thread contract: one thread owns a generator.
#ifndef LOCKSTEP_RUNTIME_JOB_GENERATOR_H_
#define LOCKSTEP_RUNTIME_JOB_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rollout/engine.h"
#include "runtime/data/weight_version.h"
#include "transport/weight_channel.h"

namespace lockstep::job {

class Generator {
 public:
  virtual ~Generator() = default;
  // Samples all requests under weights `version`, which must be published. Results come in the order of (request,
  // sample). Cancelled if `stop` turned true meanwhile.
  virtual absl::StatusOr<std::vector<rollout::GenerationResult>> Generate(
      const std::vector<rollout::GenerationRequest>& requests, const WeightVersion& version,
      const std::function<bool()>& stop) = 0;
  // True once a rank that samples was asked to stop. Looks at what came in meanwhile; never waits.
  virtual bool StopTold() { return false; }
  // Processes that sample, by worker id; those that are known so far.
  virtual std::map<int64_t, int64_t> WorkerPids() const { return {}; }
  // Ends what it owns in good order.
  virtual absl::Status Finish() = 0;
};

// The engine runs here, on the learner's threads, in turns with it.
std::unique_ptr<Generator> MakeLocalGenerator(std::unique_ptr<rollout::Engine> engine,
                                              std::unique_ptr<transport::WeightReader> weights);

// Sorts by (request, sample) and checks that each request got all its samples; Internal names the first that did not.
absl::Status OrderResults(const std::vector<rollout::GenerationRequest>& requests,
                          std::vector<rollout::GenerationResult>& results);

}  // namespace lockstep::job

#endif  // LOCKSTEP_RUNTIME_JOB_GENERATOR_H_
