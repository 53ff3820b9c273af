// Filters, tests and functions by name.
#ifndef LOCKSTEP_TEXT_JINJA_BUILTINS_H_
#define LOCKSTEP_TEXT_JINJA_BUILTINS_H_

#include <string_view>

#include "text/jinja/value.h"

namespace lockstep::text::jinja {

using FilterFunction = Value (*)(Context& context, const Value& value, const Arguments& arguments);
using TestFunction = bool (*)(Context& context, const Value& value, const Arguments& arguments);

// nullptr if there is none of that name.
FilterFunction FindFilter(std::string_view name);
FilterFunction FindTextFilter(std::string_view name);  // of those that FindFilter knows, the ones on texts and numbers
TestFunction FindTest(std::string_view name);
const NativeFunction* FindFunction(std::string_view name);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_BUILTINS_H_
