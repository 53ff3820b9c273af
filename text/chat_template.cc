#include "text/chat_template.h"

#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "text/jinja/template.h"

namespace lockstep::text {
namespace {

absl::StatusOr<std::optional<std::tm>> ParseClock(const std::string& now) {
  if (now.empty()) return std::optional<std::tm>();
  std::tm time = {};
  const char* end = strptime(now.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr || (*end != '\0' && *end != '.')) {
    return absl::InvalidArgumentError(absl::StrCat("now: '", now, "' is no time of the form 2026-03-04T15:09:26"));
  }
  return std::optional<std::tm>(time);
}

}  // namespace

struct ChatTemplate::Impl {
  std::unique_ptr<jinja::Template> program;
  SpecialTokens special;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Compile(const std::string& source,
                                                                    const SpecialTokens& special) {
  ASSIGN_OR_RETURN(std::unique_ptr<jinja::Template> program, jinja::Template::Compile(source));
  auto impl = std::make_unique<Impl>(Impl{std::move(program), special});
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

absl::StatusOr<std::string> ChatTemplate::Render(const Json& messages, const Json& tools, bool add_generation_prompt,
                                                 const Json& kwargs) const {
  ChatInput input;
  input.messages = &messages;
  input.tools = &tools;
  input.add_generation_prompt = add_generation_prompt;
  input.kwargs = &kwargs;
  ASSIGN_OR_RETURN(ChatText rendered, Render(input));
  return std::move(rendered.text);
}

absl::StatusOr<ChatText> ChatTemplate::Render(const ChatInput& input) const {
  const Json none, generate = input.add_generation_prompt;
  const SpecialTokens& special = input.special != nullptr ? *input.special : impl_->special;
  const Json bos = special.bos_token, eos = special.eos_token;
  const auto given = [&](const Json* value) { return value == nullptr ? &none : value; };
  std::vector<jinja::Binding> bindings = {
      {"messages", given(input.messages)},  {"tools", given(input.tools)}, {"documents", &none},
      {"add_generation_prompt", &generate}, {"bos_token", &bos},           {"eos_token", &eos}};
  if (input.kwargs != nullptr && input.kwargs->is_object()) {
    for (auto it = input.kwargs->begin(); it != input.kwargs->end(); ++it) bindings.push_back({it.key(), &it.value()});
  }
  jinja::RenderOptions options;
  options.mutable_sandbox = input.mutable_sandbox;
  ASSIGN_OR_RETURN(options.now, ParseClock(input.now));
  ASSIGN_OR_RETURN(jinja::RenderResult rendered, impl_->program->Render(bindings, options));
  return ChatText{std::move(rendered.text), std::move(rendered.generation_spans)};
}

bool ChatTemplate::Uses(const std::string& name) const { return impl_->program->Uses(name); }

}  // namespace lockstep::text
