// Methods of str, list, tuple and dict, and the attributes of `loop`.
#ifndef LOCKSTEP_TEXT_JINJA_METHODS_H_
#define LOCKSTEP_TEXT_JINJA_METHODS_H_

#include <string_view>
#include <unordered_map>

#include "text/jinja/value.h"

namespace lockstep::text::jinja {

struct MethodEntry {
  Value (*call)(Context& context, const Value& self, const Arguments& arguments);
  bool mutates = false;  // refused by the immutable sandbox
};
using MethodTable = std::unordered_map<std::string_view, MethodEntry>;

struct BoundMethod {
  Value self;
  std::string_view name;
  const MethodEntry* entry;
};

// Whether any type has a method of that name: attributes with other names need no look at the tables.
bool IsMethodName(std::string_view name);
// nullptr if the type of `object` has no such method.
const MethodEntry* FindMethod(const Value& object, std::string_view name);
// The bound method, an undefined value if the sandbox refuses it, or unbound if there is none.
Value MethodOf(Context& context, const Value& object, std::string_view name);
// Why the sandbox refuses a method.
Value UnsafeMethod(Context& context, const Value& object, std::string_view name);

Value LoopAttribute(Context& context, const Value& loop, std::string_view name);

const MethodTable& TextMethods();  // in text_methods.cc

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_METHODS_H_
