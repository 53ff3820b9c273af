#include "text/chat_template.h"

#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"

namespace lockstep::text {
namespace {

using jinja::Arguments;
using jinja::Dict;
using jinja::Function;
using jinja::List;
using jinja::TemplateError;
using jinja::Value;

absl::Status ToStatus(const TemplateError& error) {
  return absl::InvalidArgumentError(absl::StrCat("template line ", error.line, ": ", error.message));
}

Value RaiseException(const Arguments& arguments) {
  throw TemplateError{arguments.positional.empty() ? "the template raised an error" : arguments.positional[0].ToText(),
                      0};
}

Value MakeNamespace(const Arguments& arguments) { return Value::Of(arguments.named); }

Value Range(const Arguments& arguments) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3) throw TemplateError{"range takes one to three ints", 0};
  for (size_t i = 0; i < count; ++i) {
    const auto* value = arguments.positional[i].As<int64_t>();
    if (value == nullptr) throw TemplateError{"range takes ints", 0};
    bounds[count == 1 ? 1 : i] = *value;
  }
  if (bounds[2] == 0) throw TemplateError{"range needs a step that is not 0", 0};
  List list;
  for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1]; i += bounds[2]) {
    if (list.size() >= 100'000) throw TemplateError{"range is too long", 0};
    list.push_back(Value::Of(i));
  }
  return Value::Of(std::move(list));
}

Value StrftimeNow(const Arguments& arguments) {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  char buffer[256];
  const std::string format = arguments.positional.empty() ? "%Y-%m-%d" : arguments.positional[0].ToText();
  const size_t size = std::strftime(buffer, sizeof(buffer), format.c_str(), &local);
  return Value::Of(std::string(buffer, size));
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Body body;
  SpecialTokens special;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Compile(const std::string& source,
                                                                    const SpecialTokens& special) {
  try {
    auto impl = std::make_unique<Impl>();
    impl->body = jinja::Parse(source);
    impl->special = special;
    return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
  } catch (const TemplateError& error) {
    return ToStatus(error);
  }
}

absl::StatusOr<std::string> ChatTemplate::Render(const Json& messages, const Json& tools, bool add_generation_prompt,
                                                 const Json& kwargs) const {
  try {
    Dict globals = {{"messages", Value::FromJson(messages)},
                    {"tools", Value::FromJson(tools)},
                    {"add_generation_prompt", Value::Of(add_generation_prompt)},
                    {"bos_token", Value::Of(impl_->special.bos_token)},
                    {"eos_token", Value::Of(impl_->special.eos_token)},
                    {"raise_exception", Value::Of(Function(RaiseException))},
                    {"namespace", Value::Of(Function(MakeNamespace))},
                    {"dict", Value::Of(Function(MakeNamespace))},
                    {"range", Value::Of(Function(Range))},
                    {"strftime_now", Value::Of(Function(StrftimeNow))}};
    if (kwargs.is_object()) {
      for (const auto& [name, value] : kwargs.items()) jinja::Assign(globals, name, Value::FromJson(value));
    }
    return jinja::Evaluate(impl_->body, std::move(globals), jinja::Limits());
  } catch (const TemplateError& error) {
    return ToStatus(error);
  }
}

}  // namespace lockstep::text
