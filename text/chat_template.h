// Chat templates: Jinja programs that turn messages into the text a model was trained on. Compiled once, rendered many
// times.
//
//   ASSIGN_OR_RETURN(auto chat, ChatTemplate::Compile(source, {.bos_token = "<s>", .eos_token = "</s>"}));
//   ASSIGN_OR_RETURN(const std::string prompt, chat->Render(messages, Json(), /*add_generation_prompt=*/true, Json()));
//
// The template sees messages, tools, documents, add_generation_prompt, bos_token, eos_token, and what kwargs holds.
// The language is that of text/jinja/template.h.
//
// Errors: InvalidArgument "template line 12: <what>", also for what the template itself raises (raise_exception).
// Thread contract: immutable after Compile; Render may run on any number of threads.
#ifndef LOCKSTEP_TEXT_CHAT_TEMPLATE_H_
#define LOCKSTEP_TEXT_CHAT_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/json.h"

namespace lockstep::text {

struct SpecialTokens {
  std::string bos_token;
  std::string eos_token;
};

// All that a rendering may depend on. Null pointers stand for null.
struct ChatInput {
  const Json* messages = nullptr;  // list of objects
  const Json* tools = nullptr;     // list
  bool add_generation_prompt = false;
  const Json* kwargs = nullptr;  // object: each entry becomes a variable and wins over those above
  // The special tokens of this rendering, where they differ from Compile's.
  const SpecialTokens* special = nullptr;
  std::string now;  // clock of strftime_now, "2026-03-04T15:09:26"; empty: the local time
  // Lets the template change lists and dicts, which transformers refuses but some templates do.
  bool mutable_sandbox = false;
};

struct ChatText {
  std::string text;
  // What each {% generation %} block wrote: [begin, end) in code points of text.
  std::vector<std::pair<int64_t, int64_t>> generation_spans;
};

class ChatTemplate {
 public:
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Compile(const std::string& source, const SpecialTokens& special);
  ~ChatTemplate();

  // messages: list of objects; tools: list or null; kwargs: object whose entries become variables, or null.
  absl::StatusOr<std::string> Render(const Json& messages, const Json& tools, bool add_generation_prompt,
                                     const Json& kwargs) const;
  absl::StatusOr<ChatText> Render(const ChatInput& input) const;

  // Whether the template looks at a variable of that name ("tools", "enable_thinking").
  bool Uses(const std::string& name) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text

#endif  // LOCKSTEP_TEXT_CHAT_TEMPLATE_H_
