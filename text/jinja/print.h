// Values as text: str, repr and json.dumps of Python.
#ifndef LOCKSTEP_TEXT_JINJA_PRINT_H_
#define LOCKSTEP_TEXT_JINJA_PRINT_H_

#include <string>

#include "text/jinja/value.h"

namespace lockstep::text::jinja {

// What {{ value }} prints. Each charges the heap for what it writes.
void AppendText(const Value& value, Heap& heap, std::string& out);
void AppendRepr(const Value& value, Heap& heap, std::string& out);

// A text value as it is; anything else printed into the heap.
Value ToText(const Value& value, Heap& heap);

struct JsonStyle {
  bool indented = false;  // every item on a line of its own, indented by `indent` a level
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};
// Throws for values that are not JSON.
std::string ToJson(const Value& value, const JsonStyle& style, Heap& heap);

}  // namespace lockstep::text::jinja

#endif  // LOCKSTEP_TEXT_JINJA_PRINT_H_
