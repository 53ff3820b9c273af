#include "text/jinja/arguments.h"

namespace lockstep::text::jinja {

void TakesAtMost(const Arguments& arguments, size_t count, const char* what) {
  const size_t given = arguments.positional.size() + arguments.named.size();
  if (given > count) {
    Fail(std::string(what) + " takes at most " + std::to_string(count) + " arguments (" + std::to_string(given) +
         " given)");
  }
}

std::string_view TextOf(const Value& value, const char* what) {
  if (value.is_undefined()) Fail(value.UndefinedMessage());
  if (!value.is_text()) Fail(std::string(what) + ": a str is needed, not '" + value.TypeName() + "'");
  return value.text();
}

std::string_view TextArgument(const Arguments& arguments, size_t index, std::string_view name, const char* what) {
  const Value* value = arguments.Get(index, name);
  if (value == nullptr) Fail(std::string(what) + ": argument '" + std::string(name) + "' is missing");
  return TextOf(*value, what);
}

std::string_view TextArgumentOr(const Arguments& arguments, size_t index, std::string_view name,
                                std::string_view fallback, const char* what) {
  const Value* value = arguments.Get(index, name);
  return value == nullptr || value->is_none() ? fallback : TextOf(*value, what);
}

int64_t IntegerArgument(const Arguments& arguments, size_t index, std::string_view name, int64_t fallback) {
  const Value* value = arguments.Get(index, name);
  if (value == nullptr || value->is_none()) return fallback;
  if (!value->is_integer() && !value->is_bool()) {
    Fail("argument '" + std::string(name) + "' must be an int, not '" + value->TypeName() + "'");
  }
  return value->AsInteger();
}

bool FlagArgument(const Arguments& arguments, size_t index, std::string_view name, bool fallback) {
  const Value* value = arguments.Get(index, name);
  return value == nullptr ? fallback : value->Truthy();
}

}  // namespace lockstep::text::jinja
