// Arguments of builtins, checked. `index` is the position, `name` the keyword.
#ifndef LOCKSTEP_TEXT_JINJA_ARGUMENTS_H_
#define LOCKSTEP_TEXT_JINJA_ARGUMENTS_H_

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace lockstep::text::jinja {

// Throws if more arguments are given than the builtin takes.
void TakesAtMost(const Arguments& arguments, size_t count, const char* what);
std::string_view TextOf(const Value& value, const char* what);
std::string_view TextArgument(const Arguments& arguments, size_t index, std::string_view name, const char* what);
// nullptr or none: `fallback`.
std::string_view TextArgumentOr(const Arguments& arguments, size_t index, std::string_view name,
                                std::string_view fallback, const char* what);
int64_t IntegerArgument(const Arguments& arguments, size_t index, std::string_view name, int64_t fallback);
bool FlagArgument(const Arguments& arguments, size_t index, std::string_view name, bool fallback);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_ARGUMENTS_H_
