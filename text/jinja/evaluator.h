// Walks a program's tree and writes its text.
#ifndef LOCKSTEP_TEXT_JINJA_EVALUATOR_H_
#define LOCKSTEP_TEXT_JINJA_EVALUATOR_H_

#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/context.h"

namespace lockstep::text::jinja {

struct Evaluation {
  std::string text;
  std::vector<std::pair<int64_t, int64_t>> generation_spans;  // [begin, end) in code points
};

// globals: [program.globals], unbound where nothing was given. Throws TemplateError.
Evaluation Evaluate(const Program& program, const std::vector<Value>& globals, const Limits& limits, Context& context);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_EVALUATOR_H_
