// Jinja templates, as chat templates use them: the language of jinja2 3.1 in transformers' environment (trim_blocks,
// lstrip_blocks, loop controls, {% generation %}, the immutable sandbox), with Python's values and printing.
//
//   ASSIGN_OR_RETURN(auto hello, Template::Compile("Hello {{ name | upper }}!"));
//   ASSIGN_OR_RETURN(RenderResult result, hello->Render({{"name", &json}}, {}));
//
// Not there: inheritance, include and import, recursive loops, and integers beyond 64 bits in arithmetic (they print).
//
// Errors: InvalidArgument "template line 12: <what>", whether the template is wrong, fails, raises an exception or
// exceeds a limit (steps, memory, output, depth), so a hostile template ends within a second or so.
// Thread contract: immutable after Compile; Render may run on any number of threads.
#ifndef LOCKSTEP_TEXT_JINJA_TEMPLATE_H_
#define LOCKSTEP_TEXT_JINJA_TEMPLATE_H_

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/json.h"

namespace lockstep::text::jinja {

// A variable the template sees. A later one of the same name wins.
struct Binding {
  std::string_view name;
  const Json* value;
};

struct RenderOptions {
  std::optional<std::tm> now;    // the clock of strftime_now; not set: the local time
  bool mutable_sandbox = false;  // lets templates change lists and dicts (append, pop, update, ...)
};

struct RenderResult {
  std::string text;
  // What each {% generation %} block wrote: [begin, end) in code points of text.
  std::vector<std::pair<int64_t, int64_t>> generation_spans;
};

class Template {
 public:
  static absl::StatusOr<std::unique_ptr<Template>> Compile(const std::string& source);
  ~Template();

  absl::StatusOr<RenderResult> Render(const std::vector<Binding>& bindings, const RenderOptions& options) const;
  // Whether the template refers to a variable of that name that it may get from outside.
  bool Uses(std::string_view name) const;

 private:
  struct Impl;
  explicit Template(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_TEMPLATE_H_
