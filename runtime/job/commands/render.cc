// `render`: messages to the text that a chat template makes of them, as JSON lines.
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/job/commands.h"
#include "runtime/job/json_stream.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep::job {
namespace {

absl::StatusOr<std::unique_ptr<text::ChatTemplate>> LoadTemplate(const RenderArgs& args) {
  std::string source;
  text::SpecialTokens special;
  if (args.tokenizer.empty() && args.template_file.empty()) {
    return absl::InvalidArgumentError("name a tokenizer (--tokenizer), a template file (--template), or both");
  }
  if (!args.tokenizer.empty()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<text::Tokenizer> tokenizer, text::Tokenizer::Load(args.tokenizer));
    source = tokenizer->chat_template_source();
    special = {tokenizer->bos_token(), tokenizer->eos_token()};
    if (source.empty() && args.template_file.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(args.tokenizer, " has no chat template: name one with --template FILE"));
    }
  }
  if (!args.template_file.empty()) {
    ASSIGN_OR_RETURN(source, ReadFile(args.template_file));
  }
  return text::ChatTemplate::Compile(source, special);
}

// The entry, or null where there is none.
Json EntryOf(const Json& request, const char* key) {
  const auto found = request.find(key);
  return found == request.end() ? Json() : *found;
}

absl::StatusOr<Json> RenderAnswer(const text::ChatTemplate& chat, const Json& request) {
  bool add_generation_prompt = false;
  RETURN_IF_ERROR(CheckKeys(request, {"messages", "tools", "add_generation_prompt", "kwargs"}));
  RETURN_IF_ERROR(ReadBool(request, "add_generation_prompt", add_generation_prompt));
  const Json messages = EntryOf(request, "messages");
  const Json tools = EntryOf(request, "tools");
  const Json kwargs = EntryOf(request, "kwargs");
  if (!messages.is_array()) return absl::InvalidArgumentError("\"messages\" must be a list of objects");
  if (!tools.is_null() && !tools.is_array()) return absl::InvalidArgumentError("\"tools\" must be a list");
  if (!kwargs.is_null() && !kwargs.is_object()) return absl::InvalidArgumentError("\"kwargs\" must be an object");
  Json answer = Json::object();
  ASSIGN_OR_RETURN(answer["rendered"], chat.Render(messages, tools, add_generation_prompt, kwargs));
  return answer;
}

}  // namespace

absl::Status RenderCommand(const RenderArgs& args, std::istream& in, std::ostream& out) {
  ASSIGN_OR_RETURN(const std::unique_ptr<text::ChatTemplate> chat, LoadTemplate(args));
  return ServeJsonLines(in, out, [&](const Json& request) { return RenderAnswer(*chat, request); });
}

}  // namespace lockstep::job
