#include "runtime/job/sample_stream.h"

#include <deque>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/formats/json_lines.h"
#include "runtime/job/json_stream.h"

namespace lockstep::job {
namespace {

constexpr int64_t kMaxSamples = 1024;  // of one request

absl::Status ReadParams(const Json& request, SamplingParams& params) {
  constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
  double temperature = params.temperature;
  double top_p = params.top_p;
  int64_t top_k = params.top_k;
  int64_t max_tokens = params.max_tokens;
  int64_t min_tokens = params.min_tokens;
  RETURN_IF_ERROR(ReadNumber(request, "temperature", temperature));
  RETURN_IF_ERROR(ReadNumber(request, "top_p", top_p));
  RETURN_IF_ERROR(ReadInt(request, "top_k", 0, kMaxInt, top_k));
  RETURN_IF_ERROR(ReadInt(request, "max_tokens", 1, kMaxInt, max_tokens));
  RETURN_IF_ERROR(ReadInt(request, "min_tokens", 0, kMaxInt, min_tokens));
  params.temperature = static_cast<float>(temperature);
  params.top_p = static_cast<float>(top_p);
  params.top_k = static_cast<int32_t>(top_k);
  params.max_tokens = static_cast<int32_t>(max_tokens);
  params.min_tokens = static_cast<int32_t>(min_tokens);
  if (request.contains("stop")) {
    ASSIGN_OR_RETURN(params.stop, RequiredTexts(request, "stop"));
  }
  return params.Validate();
}

absl::StatusOr<rollout::GenerationRequest> ParseRequest(const Json& json, const PromptCodec& codec,
                                                        const SamplingParams& defaults) {
  RETURN_IF_ERROR(CheckKeys(
      json, {"messages", "ids", "seed", "temperature", "top_k", "top_p", "max_tokens", "min_tokens", "stop", "n"}));
  rollout::GenerationRequest request;
  request.params = defaults;
  RETURN_IF_ERROR(ReadParams(json, request.params));
  int64_t seed = 0;
  int64_t num_samples = 1;
  RETURN_IF_ERROR(ReadInt(json, "seed", 0, std::numeric_limits<int64_t>::max(), seed));
  RETURN_IF_ERROR(ReadInt(json, "n", 1, kMaxSamples, num_samples));
  request.key = {static_cast<uint64_t>(seed), RandomPurpose::kSampling};
  request.num_samples = static_cast<int32_t>(num_samples);
  if (json.contains("messages") == json.contains("ids")) {
    return absl::InvalidArgumentError("give either \"messages\" or \"ids\"");
  }
  if (json.contains("ids")) {
    ASSIGN_OR_RETURN(request.prompt_ids, RequiredIds(json, "ids"));
  } else {
    ASSIGN_OR_RETURN(request.prompt_ids, codec.PromptIds(json["messages"]));
  }
  return request;
}

Json AnswerOf(const SampledRun& run, const PromptCodec& codec) {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  for (const SampledToken& token : run.tokens) {
    ids.push_back(token.id);
    logprobs.push_back(token.rollout_logprob);
  }
  Json answer = Json::object();
  answer["ids"] = ids;
  answer["logprobs"] = logprobs;
  answer["text"] = codec.Text(ids);
  answer["finish_reason"] = FinishReasonName(run.finish_reason);
  return answer;
}

class Stream {
 public:
  Stream(rollout::Engine& engine, const PromptCodec& codec, const SampleStreamOptions& options, std::istream& in,
         std::ostream& out)
      : engine_(engine), codec_(codec), options_(options), in_(in), out_(out) {}

  absl::Status Serve() {
    while (true) {
      while (WantsLine() && ReadLine()) {
      }
      if (!WriteAnswers()) return absl::UnavailableError("the output is closed");
      if (!engine_.busy()) {
        if (at_end_) return StreamEnd(num_errors_, num_lines_);
        continue;
      }
      std::vector<rollout::GenerationResult> finished;
      engine_.Step(&finished);
      for (rollout::GenerationResult& result : finished) Place(std::move(result));
    }
  }

 private:
  // A request and what is known of its answers.
  struct Entry {
    int64_t request_id = 0;
    int64_t num_missing = 0;
    std::vector<Json> answers;  // one a sample
  };

  // Reading may wait for the other side, so while the engine has work only what has arrived already is read.
  bool WantsLine() const {
    if (at_end_ || static_cast<int64_t>(entries_.size()) >= options_.max_waiting_lines) return false;
    return (!engine_.busy() && entries_.empty()) || in_.rdbuf()->in_avail() > 0;
  }

  bool ReadLine() {
    std::string text;
    if (!std::getline(in_, text)) {
      at_end_ = true;
      return false;
    }
    ++num_lines_;
    Entry entry;
    entry.request_id = num_lines_;
    const absl::Status status = Submit(text, entry);
    if (!status.ok()) {
      ++num_errors_;
      entry.num_missing = 0;
      entry.answers = {ErrorAnswer(num_lines_, status)};
    }
    entries_.push_back(std::move(entry));
    return true;
  }

  absl::Status Submit(const std::string& text, Entry& entry) {
    ASSIGN_OR_RETURN(const Json json, formats::ParseJsonLine(text, "not a request"));
    ASSIGN_OR_RETURN(rollout::GenerationRequest request, ParseRequest(json, codec_, options_.defaults));
    request.request_id = entry.request_id;
    entry.num_missing = request.num_samples;
    entry.answers.resize(static_cast<size_t>(request.num_samples));
    return engine_.Submit(std::move(request));
  }

  void Place(rollout::GenerationResult result) {
    for (Entry& entry : entries_) {
      if (entry.request_id != result.request_id) continue;
      entry.answers[static_cast<size_t>(result.run.sample_id)] = AnswerOf(result.run, codec_);
      --entry.num_missing;
      return;
    }
    CHECK(false);  // the engine finished a request that was never given to it
  }

  bool WriteAnswers() {
    while (!entries_.empty() && entries_.front().num_missing == 0) {
      for (const Json& answer : entries_.front().answers) out_ << DumpJson(answer) << "\n";
      entries_.pop_front();
    }
    out_.flush();
    return static_cast<bool>(out_);
  }

  rollout::Engine& engine_;
  const PromptCodec& codec_;
  const SampleStreamOptions& options_;
  std::istream& in_;
  std::ostream& out_;
  std::deque<Entry> entries_;  // in the order of lines
  bool at_end_ = false;
  int64_t num_lines_ = 0;
  int64_t num_errors_ = 0;
};

}  // namespace

absl::Status ServeSamples(rollout::Engine& engine, const PromptCodec& codec, const SampleStreamOptions& options,
                          std::istream& in, std::ostream& out) {
  return Stream(engine, codec, options, in, out).Serve();
}

}  // namespace lockstep::job
