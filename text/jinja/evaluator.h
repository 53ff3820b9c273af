// Walks a template's tree and writes its text.
#ifndef LOCKSTEP_TEXT_JINJA_EVALUATOR_H_
#define LOCKSTEP_TEXT_JINJA_EVALUATOR_H_

#include <cstdint>
#include <string>

#include "text/jinja/ast.h"

namespace lockstep::text::jinja {

// A hostile template ends with an error, not with the machine.
struct Limits {
  int64_t max_steps = 2'000'000;
  int64_t max_output_bytes = int64_t{64} << 20;
  int max_call_depth = 100;
};

// Throws TemplateError.
std::string Evaluate(const Body& body, Dict globals, const Limits& limits);

// The operations beside the syntax, in builtins.cc. Each throws TemplateError without a line.
Value ApplyFilter(const std::string& name, const Value& value, const Arguments& arguments);
bool ApplyTest(const std::string& name, const Value& value, const Arguments& arguments);
Value CallMethod(const Value& object, const std::string& name, const Arguments& arguments);
Value GetItem(const Value& object, const Value& key);
Value Slice(const Value& object, const Value* begin, const Value* end, const Value* step);
// Items that a loop over the value visits: list items, dict keys, characters.
List Iterate(const Value& value);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_EVALUATOR_H_
