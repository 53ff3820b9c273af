#include "text/jinja/template.h"

#include <algorithm>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "text/jinja/ast.h"
#include "text/jinja/context.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/jinja/resolver.h"

namespace lockstep::text::jinja {
namespace {

absl::Status ToStatus(const TemplateError& error) {
  return absl::InvalidArgumentError(absl::StrCat("template line ", std::max(error.line, 1), ": ", error.message));
}

}  // namespace

struct Template::Impl {
  Program program;
  std::vector<Value> functions;  // [program.globals], unbound where the environment has none
  std::unordered_map<std::string_view, size_t> globals;
};

Template::Template(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Template::~Template() = default;

absl::StatusOr<std::unique_ptr<Template>> Template::Compile(const std::string& source) {
  try {
    auto impl = std::make_unique<Impl>();
    Parse(source, impl->program);
    Resolve(impl->program);
    for (std::string_view name : impl->program.globals) {
      const NativeFunction* function = FindFunction(name);
      impl->globals.emplace(name, impl->functions.size());
      impl->functions.push_back(function == nullptr ? Value::Unbound() : Value::Of(function));
    }
    return std::unique_ptr<Template>(new Template(std::move(impl)));
  } catch (const TemplateError& error) {
    return ToStatus(error);
  }
}

absl::StatusOr<RenderResult> Template::Render(const std::vector<Binding>& bindings,
                                              const RenderOptions& options) const {
  try {
    const Limits limits;
    Context context(limits, options.mutable_sandbox, options.now);
    std::vector<Value> globals = impl_->functions;
    for (const Binding& binding : bindings) {
      const auto it = impl_->globals.find(binding.name);
      if (it != impl_->globals.end()) globals[it->second] = context.heap.FromJson(*binding.value);
    }
    Evaluation evaluation = Evaluate(impl_->program, globals, limits, context);
    return RenderResult{std::move(evaluation.text), std::move(evaluation.generation_spans)};
  } catch (const TemplateError& error) {
    return ToStatus(error);
  }
}

bool Template::Uses(std::string_view name) const { return impl_->globals.count(name) != 0; }

}  // namespace lockstep::text::jinja
