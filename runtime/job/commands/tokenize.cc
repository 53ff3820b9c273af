// `tokenize`: text to ids and back, as JSON lines.
#include <memory>
#include <nlohmann/json.hpp>

#include "runtime/base/status.h"
#include "runtime/job/commands.h"
#include "runtime/job/json_stream.h"
#include "text/tokenizer.h"

namespace lockstep::job {
namespace {

absl::StatusOr<Json> EncodeAnswer(const text::Tokenizer& tokenizer, const Json& request) {
  bool add_special_tokens = true;
  RETURN_IF_ERROR(CheckKeys(request, {"text", "add_special_tokens"}));
  RETURN_IF_ERROR(ReadBool(request, "add_special_tokens", add_special_tokens));
  ASSIGN_OR_RETURN(const std::string text, RequiredText(request, "text"));
  Json answer = Json::object();
  answer["ids"] = tokenizer.Encode(text, add_special_tokens);
  return answer;
}

absl::StatusOr<Json> DecodeAnswer(const text::Tokenizer& tokenizer, const Json& request) {
  bool skip_special_tokens = false;
  RETURN_IF_ERROR(CheckKeys(request, {"ids", "skip_special_tokens"}));
  RETURN_IF_ERROR(ReadBool(request, "skip_special_tokens", skip_special_tokens));
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, RequiredIds(request, "ids"));
  Json answer = Json::object();
  answer["text"] = tokenizer.Decode(ids, skip_special_tokens);
  return answer;
}

}  // namespace

absl::Status TokenizeCommand(const std::string& tokenizer_path, std::istream& in, std::ostream& out) {
  ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, text::Tokenizer::Load(tokenizer_path));
  return ServeJsonLines(in, out, [&](const Json& request) -> absl::StatusOr<Json> {
    if (request.contains("text") == request.contains("ids")) {
      return absl::InvalidArgumentError("give either \"text\" or \"ids\"");
    }
    return request.contains("text") ? EncodeAnswer(*tokenizer, request) : DecodeAnswer(*tokenizer, request);
  });
}

}  // namespace lockstep::job
