// What coordinator and workers say to each other: plain records, sent over the message bus (message_bus.h) and written
// as Cap'n Proto (messages.capnp, message_codec.h).
//
// Life of a worker: it sends Hello; the coordinator answers with PublishWeights for the current version; the worker
// maps it (weight_channel.h) and sends PublishAck; then GenerateRequests arrive and each of their samples is answered
// by one GenerateResult, in any order. Heartbeats and Metrics go out on the worker's own beat. Stop ends it.
//
// Tensors never travel here: weights by shared memory. Token records do.
#ifndef LOCKSTEP_TRANSPORT_MESSAGE_H_
#define LOCKSTEP_TRANSPORT_MESSAGE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/philox.h"
#include "runtime/data/sampling_params.h"
#include "runtime/data/token_tree.h"
#include "runtime/data/weight_version.h"

namespace lockstep::transport {

// Version of the messages' meaning. A peer that speaks another one is refused.
inline constexpr uint16_t kProtocolVersion = 1;

// Who a worker is: unique within the run, kept by a restarted child (its pid tells the incarnations apart).
using WorkerId = int32_t;

struct Hello {
  WorkerId worker_id = 0;
  int64_t pid = 0;
  std::string kernel_signature;  // ranks whose bits may differ are refused
  std::string model_hash;        // what the worker loaded: catches a folder that differs between ranks
  friend bool operator==(const Hello&, const Hello&) = default;
};

struct Heartbeat {
  WorkerId worker_id = 0;
  int64_t num_requests_in_flight = 0;
  int64_t weight_version = 0;
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

// Samples [first_sample_idx, first_sample_idx + num_samples) of one prompt's group: the prompt is prefilled once.
struct GenerateRequest {
  int64_t request_id = 0;
  int64_t ordinal = 0;
  std::vector<int32_t> prompt_ids;
  int32_t num_samples = 1;
  int32_t first_sample_idx = 0;
  SamplingParams params;
  uint64_t seed = 0;  // the run's seed: the keys of the counter RNG are (seed, purpose, ordinal, sample, turn, draw)
  int32_t turn = 0;
  RandomPurpose purpose = RandomPurpose::kSampling;  // training and evaluation never share a number
  WeightVersion weight_version;                      // the weights to sample under; the worker waits for them
  friend bool operator==(const GenerateRequest&, const GenerateRequest&) = default;
};

// One sample. Either `error` is empty and the tokens are valid, or it says why there are none (they may be partial).
struct GenerateResult {
  int64_t request_id = 0;
  int64_t ordinal = 0;
  int32_t sample_idx = 0;
  std::vector<SampledToken> tokens;
  KeptIds kept;  // empty, or one entry per token
  FinishReason finish_reason = FinishReason::kNone;
  std::string error;
  double seconds = 0;  // from the request's arrival to its end; for metrics only
};

// Requests that are no longer wanted: dropped without an answer.
struct CancelRequests {
  std::vector<int64_t> request_ids;  // empty: all
  friend bool operator==(const CancelRequests&, const CancelRequests&) = default;
};

// Version `version` lies in slot `slot` of the weight channel.
struct PublishWeights {
  WeightVersion version;
  int32_t slot = 0;
  friend bool operator==(const PublishWeights&, const PublishWeights&) = default;
};

// The worker samples under `version` from now on.
struct PublishAck {
  WorkerId worker_id = 0;
  WeightVersion version;
  friend bool operator==(const PublishAck&, const PublishAck&) = default;
};

// What the run does now, so that a worker can say it in its logs and free what it does not need.
struct PhaseChange {
  enum class Phase : uint8_t { kIdle, kGenerate, kTrain, kEvaluate };
  int64_t step = 0;
  Phase phase = Phase::kIdle;
  friend bool operator==(const PhaseChange&, const PhaseChange&) = default;
};

// The worker finishes what it writes and exits with code 0.
struct Stop {
  std::string reason;
  friend bool operator==(const Stop&, const Stop&) = default;
};

// Why a peer cannot go on: outermost text first, then its causes.
struct ErrorReport {
  WorkerId worker_id = 0;
  int32_t code = 0;  // absl::StatusCode
  std::string text;
  std::vector<std::string> causes;
  friend bool operator==(const ErrorReport&, const ErrorReport&) = default;
};
ErrorReport ReportOf(WorkerId worker_id, const absl::Status& status, std::vector<std::string> causes = {});
absl::Status StatusOf(const ErrorReport& report);  // "worker 2: <text>: <cause>: <cause>"; never OK

struct Metrics {
  WorkerId worker_id = 0;
  std::string json;  // one object
  friend bool operator==(const Metrics&, const Metrics&) = default;
};

using Message = std::variant<Hello, Heartbeat, GenerateRequest, GenerateResult, CancelRequests, PublishWeights,
                             PublishAck, PhaseChange, Stop, ErrorReport, Metrics>;

const char* MessageName(const Message& message);  // "Hello", "GenerateRequest", ...

}  // namespace lockstep::transport

#endif  // LOCKSTEP_TRANSPORT_MESSAGE_H_
