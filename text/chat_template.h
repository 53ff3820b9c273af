// Chat templates: Jinja programs that turn messages into the text a model was trained on. Compiled once, rendered many
// times.
//
//   ASSIGN_OR_RETURN(auto chat, ChatTemplate::Compile(source, {.bos_token = "<s>", .eos_token = "</s>"}));
//   ASSIGN_OR_RETURN(const std::string prompt, chat->Render(messages, Json(), /*add_generation_prompt=*/true, Json()));
//
// Errors: InvalidArgument "template line 12: <what>", also for what the template itself raises (raise_exception).
// Thread contract: immutable after Compile; Render may run on any number of threads.
#ifndef LOCKSTEP_TEXT_CHAT_TEMPLATE_H_
#define LOCKSTEP_TEXT_CHAT_TEMPLATE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/json.h"

namespace lockstep::text {

struct SpecialTokens {
  std::string bos_token;
  std::string eos_token;
};

class ChatTemplate {
 public:
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Compile(const std::string& source, const SpecialTokens& special);
  ~ChatTemplate();

  // messages: list of objects; tools: list or null; kwargs: object whose entries become variables, or null.
  absl::StatusOr<std::string> Render(const Json& messages, const Json& tools, bool add_generation_prompt,
                                     const Json& kwargs) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text

#endif  // LOCKSTEP_TEXT_CHAT_TEMPLATE_H_
