#include "transport/message_codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/array.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "transport/messages.capnp.h"

namespace lockstep::transport {
namespace {

// ---- Small conversions, both ways ----

capnp::Data::Reader ToData(const std::string& text) {
  return {reinterpret_cast<const capnp::byte*>(text.data()), text.size()};
}

std::string FromData(capnp::Data::Reader data) {
  return std::string(reinterpret_cast<const char*>(data.begin()), data.size());
}

template <typename ListBuilder, typename T, typename Get>
void FillList(ListBuilder list, const std::vector<T>& items, Get get) {
  for (size_t i = 0; i < items.size(); ++i) list.set(static_cast<unsigned>(i), get(items[i]));
}

template <typename T, typename ListReader>
std::vector<T> FromList(const ListReader& list) {
  std::vector<T> items;
  items.reserve(list.size());
  for (const auto item : list) items.push_back(item);
  return items;
}

constexpr auto kSame = [](auto value) { return value; };

// capnp counts list elements in 29 bits; a vector that does not fit is caught here rather than truncated.
template <typename T>
unsigned ListSize(const std::vector<T>& items) {
  KJ_REQUIRE(items.size() < (1u << 29), "a list has too many entries");
  return static_cast<unsigned>(items.size());
}

void Write(const WeightVersion& in, wire::WeightVersion::Builder out) {
  out.setNumber(in.number);
  out.setHash(in.hash);
}

WeightVersion Read(wire::WeightVersion::Reader in) { return {in.getNumber(), in.getHash()}; }

// ---- Writing: one overload per kind ----

void Write(const Hello& in, wire::Envelope::Body::Builder body) {
  auto out = body.initHello();
  out.setWorkerId(in.worker_id);
  out.setPid(in.pid);
  out.setKernelSignature(ToData(in.kernel_signature));
  out.setModelHash(ToData(in.model_hash));
}

void Write(const Heartbeat& in, wire::Envelope::Body::Builder body) {
  auto out = body.initHeartbeat();
  out.setWorkerId(in.worker_id);
  out.setNumRequestsInFlight(in.num_requests_in_flight);
  out.setWeightVersion(in.weight_version);
}

void Write(const SamplingParams& in, wire::SamplingParams::Builder out) {
  out.setTemperature(in.temperature);
  out.setTopK(in.top_k);
  out.setTopP(in.top_p);
  out.setMaxTokens(in.max_tokens);
  out.setMinTokens(in.min_tokens);
  FillList(out.initStopIds(ListSize(in.stop_ids)), in.stop_ids, kSame);
  FillList(out.initStop(ListSize(in.stop)), in.stop, ToData);
}

void Write(const GenerateRequest& in, wire::Envelope::Body::Builder body) {
  auto out = body.initGenerateRequest();
  out.setRequestId(in.request_id);
  out.setOrdinal(in.ordinal);
  FillList(out.initPromptIds(ListSize(in.prompt_ids)), in.prompt_ids, kSame);
  out.setNumSamples(in.num_samples);
  out.setFirstSampleIdx(in.first_sample_idx);
  Write(in.params, out.initParams());
  out.setSeed(in.seed);
  out.setTurn(in.turn);
  out.setPurpose(static_cast<uint8_t>(in.purpose));
  Write(in.weight_version, out.initWeightVersion());
}

void Write(const GenerateResult& in, wire::Envelope::Body::Builder body) {
  auto out = body.initGenerateResult();
  out.setRequestId(in.request_id);
  out.setOrdinal(in.ordinal);
  out.setSampleIdx(in.sample_idx);
  const unsigned n = ListSize(in.tokens);
  FillList(out.initIds(n), in.tokens, [](const SampledToken& token) { return token.id; });
  FillList(out.initRolloutLogprobs(n), in.tokens, [](const SampledToken& token) { return token.rollout_logprob; });
  FillList(out.initLogprobValid(n), in.tokens, [](const SampledToken& token) { return token.logprob_valid; });
  FillList(out.initWeightVersions(n), in.tokens, [](const SampledToken& token) { return token.weight_version; });
  FillList(out.initKeptKinds(ListSize(in.kept.kinds)), in.kept.kinds,
           [](KeptIds::Kind kind) { return static_cast<uint8_t>(kind); });
  FillList(out.initKeptOffsets(ListSize(in.kept.offsets)), in.kept.offsets, kSame);
  FillList(out.initKeptIds(ListSize(in.kept.ids)), in.kept.ids, kSame);
  out.setFinishReason(static_cast<uint8_t>(in.finish_reason));
  out.setError(ToData(in.error));
  out.setSeconds(in.seconds);
}

void Write(const CancelRequests& in, wire::Envelope::Body::Builder body) {
  FillList(body.initCancelRequests().initRequestIds(ListSize(in.request_ids)), in.request_ids, kSame);
}

void Write(const PublishWeights& in, wire::Envelope::Body::Builder body) {
  auto out = body.initPublishWeights();
  Write(in.version, out.initVersion());
  out.setSlot(in.slot);
}

void Write(const PublishAck& in, wire::Envelope::Body::Builder body) {
  auto out = body.initPublishAck();
  out.setWorkerId(in.worker_id);
  Write(in.version, out.initVersion());
}

void Write(const PhaseChange& in, wire::Envelope::Body::Builder body) {
  auto out = body.initPhaseChange();
  out.setStep(in.step);
  out.setPhase(static_cast<uint8_t>(in.phase));
}

void Write(const Stop& in, wire::Envelope::Body::Builder body) { body.initStop().setReason(ToData(in.reason)); }

void Write(const ErrorReport& in, wire::Envelope::Body::Builder body) {
  auto out = body.initErrorReport();
  out.setWorkerId(in.worker_id);
  out.setCode(in.code);
  out.setText(ToData(in.text));
  FillList(out.initCauses(ListSize(in.causes)), in.causes, ToData);
}

void Write(const Metrics& in, wire::Envelope::Body::Builder body) {
  auto out = body.initMetrics();
  out.setWorkerId(in.worker_id);
  out.setJson(ToData(in.json));
}

// ---- Reading: one function per kind that needs checks ----

absl::Status Malformed(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed message: ", what));
}

absl::StatusOr<Message> Read(wire::GenerateRequest::Reader in) {
  GenerateRequest out;
  out.request_id = in.getRequestId();
  out.ordinal = in.getOrdinal();
  out.prompt_ids = FromList<int32_t>(in.getPromptIds());
  out.num_samples = in.getNumSamples();
  out.first_sample_idx = in.getFirstSampleIdx();
  const auto params = in.getParams();
  out.params.temperature = params.getTemperature();
  out.params.top_k = params.getTopK();
  out.params.top_p = params.getTopP();
  out.params.max_tokens = params.getMaxTokens();
  out.params.min_tokens = params.getMinTokens();
  out.params.stop_ids = FromList<int32_t>(params.getStopIds());
  for (const auto text : params.getStop()) out.params.stop.push_back(FromData(text));
  out.seed = in.getSeed();
  out.turn = in.getTurn();
  out.purpose = static_cast<RandomPurpose>(in.getPurpose());
  out.weight_version = Read(in.getWeightVersion());
  if (out.num_samples < 1 || out.first_sample_idx < 0 || out.first_sample_idx > INT32_MAX - out.num_samples) {
    return Malformed(absl::StrCat("GenerateRequest for ", out.num_samples, " samples from ", out.first_sample_idx));
  }
  if (out.prompt_ids.empty()) return Malformed("GenerateRequest with an empty prompt");
  if (const absl::Status valid = out.params.Validate(); !valid.ok()) {
    return AddContext(valid, "malformed message: GenerateRequest");
  }
  return out;
}

absl::Status CheckKept(const KeptIds& kept, size_t num_tokens) {
  if (kept.kinds.empty() && kept.offsets.empty() && kept.ids.empty()) return absl::OkStatus();
  if (kept.kinds.size() != num_tokens || kept.offsets.size() != num_tokens + 1) {
    return Malformed(
        absl::StrCat("GenerateResult with kept ids for ", kept.kinds.size(), " of ", num_tokens, " tokens"));
  }
  if (kept.offsets.front() != 0 || kept.offsets.back() != static_cast<int64_t>(kept.ids.size()) ||
      !std::is_sorted(kept.offsets.begin(), kept.offsets.end())) {
    return Malformed("GenerateResult whose offsets of kept ids do not grow from 0 to their number");
  }
  return absl::OkStatus();
}

absl::StatusOr<Message> Read(wire::GenerateResult::Reader in) {
  GenerateResult out;
  out.request_id = in.getRequestId();
  out.ordinal = in.getOrdinal();
  out.sample_idx = in.getSampleIdx();
  const auto ids = in.getIds();
  const auto logprobs = in.getRolloutLogprobs();
  const auto valid = in.getLogprobValid();
  const auto versions = in.getWeightVersions();
  if (logprobs.size() != ids.size() || valid.size() != ids.size() || versions.size() != ids.size()) {
    return Malformed(absl::StrCat("GenerateResult with ", ids.size(), " ids, ", logprobs.size(), " log-probs, ",
                                  valid.size(), " marks and ", versions.size(), " versions"));
  }
  out.tokens.reserve(ids.size());
  for (unsigned i = 0; i < ids.size(); ++i) out.tokens.push_back({ids[i], logprobs[i], valid[i], versions[i]});
  for (const uint8_t kind : in.getKeptKinds()) {
    if (kind > static_cast<uint8_t>(KeptIds::Kind::kCut)) return Malformed(absl::StrCat("kind of kept ids ", kind));
    out.kept.kinds.push_back(static_cast<KeptIds::Kind>(kind));
  }
  out.kept.offsets = FromList<int32_t>(in.getKeptOffsets());
  out.kept.ids = FromList<int32_t>(in.getKeptIds());
  RETURN_IF_ERROR(CheckKept(out.kept, out.tokens.size()));
  if (in.getFinishReason() > static_cast<uint8_t>(FinishReason::kAborted)) {
    return Malformed(absl::StrCat("finish reason ", in.getFinishReason()));
  }
  out.finish_reason = static_cast<FinishReason>(in.getFinishReason());
  out.error = FromData(in.getError());
  out.seconds = in.getSeconds();
  return out;
}

absl::StatusOr<Message> Read(wire::PhaseChange::Reader in) {
  if (in.getPhase() > static_cast<uint8_t>(PhaseChange::Phase::kEvaluate)) {
    return Malformed(absl::StrCat("phase ", in.getPhase()));
  }
  return PhaseChange{in.getStep(), static_cast<PhaseChange::Phase>(in.getPhase())};
}

Message Read(wire::ErrorReport::Reader in) {
  ErrorReport out{in.getWorkerId(), in.getCode(), FromData(in.getText()), {}};
  for (const auto cause : in.getCauses()) out.causes.push_back(FromData(cause));
  return out;
}

absl::StatusOr<Message> ReadBody(wire::Envelope::Body::Reader body) {
  using Body = wire::Envelope::Body;
  switch (body.which()) {
    case Body::HELLO: {
      const auto in = body.getHello();
      return Hello{in.getWorkerId(), in.getPid(), FromData(in.getKernelSignature()), FromData(in.getModelHash())};
    }
    case Body::HEARTBEAT: {
      const auto in = body.getHeartbeat();
      return Heartbeat{in.getWorkerId(), in.getNumRequestsInFlight(), in.getWeightVersion()};
    }
    case Body::GENERATE_REQUEST:
      return Read(body.getGenerateRequest());
    case Body::GENERATE_RESULT:
      return Read(body.getGenerateResult());
    case Body::CANCEL_REQUESTS:
      return CancelRequests{FromList<int64_t>(body.getCancelRequests().getRequestIds())};
    case Body::PUBLISH_WEIGHTS:
      return PublishWeights{Read(body.getPublishWeights().getVersion()), body.getPublishWeights().getSlot()};
    case Body::PUBLISH_ACK:
      return PublishAck{body.getPublishAck().getWorkerId(), Read(body.getPublishAck().getVersion())};
    case Body::PHASE_CHANGE:
      return Read(body.getPhaseChange());
    case Body::STOP:
      return Stop{FromData(body.getStop().getReason())};
    case Body::ERROR_REPORT:
      return Read(body.getErrorReport());
    case Body::METRICS:
      return Metrics{body.getMetrics().getWorkerId(), FromData(body.getMetrics().getJson())};
  }
  return absl::FailedPreconditionError(
      absl::StrCat("a message of unknown kind ", static_cast<int>(body.which()), ": is the peer another version?"));
}

}  // namespace

absl::StatusOr<std::string> Encode(const Message& message, size_t max_bytes) {
  try {
    capnp::MallocMessageBuilder builder;
    auto envelope = builder.initRoot<wire::Envelope>();
    envelope.setProtocolVersion(kProtocolVersion);
    std::visit([&](const auto& in) { Write(in, envelope.getBody()); }, message);
    const size_t num_bytes = capnp::computeSerializedSizeInWords(builder) * sizeof(capnp::word);
    if (num_bytes > max_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("a ", MessageName(message), " message of ", num_bytes,
                                                       " bytes is larger than the limit of ", max_bytes));
    }
    const kj::Array<capnp::word> words = capnp::messageToFlatArray(builder);
    return std::string(reinterpret_cast<const char*>(words.begin()), words.size() * sizeof(capnp::word));
  } catch (const kj::Exception& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a ", MessageName(message), " message cannot be encoded: ", error.getDescription().cStr()));
  }
}

absl::StatusOr<Message> Decode(absl::Span<const uint8_t> bytes) {
  if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0) {
    return Malformed(absl::StrCat(bytes.size(), " bytes are not whole words"));
  }
  try {
    // A payload may lie at any address; Cap'n Proto reads aligned words.
    kj::Array<capnp::word> words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
    std::memcpy(words.begin(), bytes.data(), bytes.size());
    capnp::ReaderOptions options;
    // Each part is read once or twice; pointers that all point at the same bytes must not multiply them.
    options.traversalLimitInWords = 4 * words.size() + 64;
    options.nestingLimit = 8;
    capnp::FlatArrayMessageReader reader(words, options);
    const auto envelope = reader.getRoot<wire::Envelope>();
    if (envelope.getProtocolVersion() != kProtocolVersion) {
      return absl::FailedPreconditionError(absl::StrCat("the peer speaks protocol version ",
                                                        envelope.getProtocolVersion(), ", this program ",
                                                        kProtocolVersion, ": start all ranks from one build"));
    }
    return ReadBody(envelope.getBody());
  } catch (const kj::Exception& error) {
    return Malformed(error.getDescription().cStr());
  }
}

}  // namespace lockstep::transport
